use std::cell::Cell;

use super::mock::Mocks;
use super::*;

/// An engine that gets well, and falls ill, between any two looks at it.
struct Restless(Mocks, Cell<u32>);

impl Candidates for Restless {
    fn count(&self) -> usize {
        self.0.count()
    }

    fn id(&self, place: usize) -> EngineId {
        self.0.id(place)
    }

    fn standing(&self, _place: usize) -> Standing {
        self.1.set(self.1.get() + 1);
        if self.1.get().is_multiple_of(2) {
            Standing::Eligible
        } else {
            Standing::Doubtful
        }
    }

    fn load(&self, place: usize) -> f64 {
        self.0.load(place)
    }

    fn placed(&self, place: usize) -> usize {
        self.0.placed(place)
    }

    fn placed_in_all(&self) -> usize {
        self.0.placed_in_all()
    }

    fn incarnation(&self, place: usize) -> u32 {
        self.0.incarnation(place)
    }
}

#[test]
fn somebody_is_picked_whose_health_changes_meanwhile() {
    let member = Member {
        id: EngineId::new(0),
        name: "http://e",
        weight: 1,
    };
    for (word, kind) in Kind::WORDS {
        let logics = Logics::new(Routing {
            kind,
            ..Routing::default()
        });
        let logic = Logic::new(&logics, std::slice::from_ref(&member), None);
        for calls in 0..4 {
            let engine = Restless(Mocks::idle(1), Cell::new(calls));
            let ask = Ask {
                session: Some("s"),
                ..Ask::default()
            };
            assert_eq!(logic.pick(&ask, &engine), Some(0), "{word} {calls}");
        }
    }
}
