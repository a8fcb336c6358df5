//! Candidates that are nothing but numbers.

use vllm_pingora::engines::EngineId;
use vllm_pingora::retry::Standing;
use vllm_pingora::routing::Candidates;

/// Engines whose loads never change.
#[derive(Debug)]
pub struct Fixed {
    pub standings: Vec<Standing>,
    in_flight: usize,
}

impl Fixed {
    /// Eligible engines with so many requests in flight each.
    pub fn new(count: usize, in_flight: usize) -> Self {
        Self {
            standings: vec![Standing::Eligible; count],
            in_flight,
        }
    }

    /// The id of the engine at a place.
    pub fn id_of(place: usize) -> EngineId {
        EngineId::new(place as u32)
    }
}

impl Candidates for Fixed {
    fn count(&self) -> usize {
        self.standings.len()
    }

    fn id(&self, place: usize) -> EngineId {
        Self::id_of(place)
    }

    fn standing(&self, place: usize) -> Standing {
        self.standings[place]
    }

    fn load(&self, _: usize) -> f64 {
        self.in_flight as f64
    }

    fn placed(&self, _: usize) -> usize {
        self.in_flight
    }

    fn placed_in_all(&self) -> usize {
        self.in_flight * self.count()
    }

    fn incarnation(&self, _: usize) -> u32 {
        0
    }
}
