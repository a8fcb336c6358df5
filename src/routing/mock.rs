//! Engines that are nothing but numbers, for the tests of the logics.

use super::{Candidates, Member};
use crate::engines::EngineId;
use crate::retry::Standing;

#[derive(Clone, Debug)]
pub(super) struct Mock {
    pub(super) standing: Standing,
    pub(super) load: f64,
    pub(super) placed: usize,
    pub(super) incarnation: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Mocks(pub(super) Vec<Mock>);

impl Mocks {
    /// Idle engines, all eligible.
    pub(super) fn idle(count: usize) -> Self {
        let idle = Mock {
            standing: Standing::Eligible,
            load: 0.0,
            placed: 0,
            incarnation: 0,
        };
        Self(vec![idle; count])
    }

    /// Engines of these standings.
    pub(super) fn standing(standings: &[Standing]) -> Self {
        let mut mocks = Self::idle(standings.len());
        for (mock, standing) in mocks.0.iter_mut().zip(standings) {
            mock.standing = *standing;
        }
        mocks
    }

    /// Eligible engines of these loads.
    pub(super) fn loaded(loads: &[f64]) -> Self {
        let mut mocks = Self::idle(loads.len());
        for (mock, load) in mocks.0.iter_mut().zip(loads) {
            mock.load = *load;
        }
        mocks
    }
}

impl Candidates for Mocks {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn id(&self, place: usize) -> EngineId {
        EngineId::new(u32::try_from(place).unwrap())
    }

    fn standing(&self, place: usize) -> Standing {
        self.0[place].standing
    }

    fn load(&self, place: usize) -> f64 {
        self.0[place].load
    }

    fn placed(&self, place: usize) -> usize {
        self.0[place].placed
    }

    fn placed_in_all(&self) -> usize {
        self.0.iter().map(|mock| mock.placed).sum()
    }

    fn incarnation(&self, place: usize) -> u32 {
        self.0[place].incarnation
    }
}

/// Members with these weights, named by their places.
pub(super) fn with_members<T>(weights: &[u32], then: impl FnOnce(&[Member<'_>]) -> T) -> T {
    let names: Vec<String> = (0..weights.len())
        .map(|place| format!("http://10.0.0.{place}:8000"))
        .collect();
    let members: Vec<_> = names
        .iter()
        .zip(weights)
        .enumerate()
        .map(|(place, (name, weight))| Member {
            id: EngineId::new(u32::try_from(place).unwrap()),
            name,
            weight: *weight,
        })
        .collect();
    then(&members)
}
