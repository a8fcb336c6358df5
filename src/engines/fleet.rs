//! All engines, and which of them serve which model.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

use super::{Engine, EngineId, Pool};
use crate::config::EngineSpec;
use crate::routing::{Logics, Routing};

/// What a model name leads to.
#[derive(Debug)]
pub enum Lookup {
    /// The engines that serve it, and whether the name is an alias.
    Pool(Arc<Pool>, bool),
    /// It is known, and no engine serves it now; or engines that may serve it have not been heard.
    NoEngine,
    /// Nobody serves it.
    Unknown,
}

/// All engines and what they serve; a snapshot is swapped in whenever that changes.
#[derive(Debug)]
pub struct Fleet {
    engines: Vec<Arc<Engine>>,
    aliases: BTreeMap<String, String>,
    /// What each engine serves; `None` where it has never been learnt. Changed under the lock,
    /// read from the snapshot.
    served: Mutex<Vec<Option<Vec<String>>>>,
    pools: ArcSwap<HashMap<String, Arc<Pool>>>,
    any: Arc<Pool>,
    logics: Logics,
}

impl Fleet {
    /// The fleet of a configuration. Engines without models serve nothing until
    /// [`learn`](Self::learn).
    pub fn new(specs: &[EngineSpec], aliases: &BTreeMap<String, String>, routing: Routing) -> Self {
        let engines: Vec<_> = (0u32..)
            .zip(specs)
            .map(|(number, spec)| Arc::new(Engine::new(EngineId::new(number), spec)))
            .collect();
        let served: Vec<_> = specs
            .iter()
            .map(|spec| (!spec.models.is_empty()).then(|| spec.models.clone()))
            .collect();
        let logics = Logics::new(routing);
        let fleet = Self {
            any: Arc::new(Pool::new("".into(), engines.clone(), &logics, None)),
            logics,
            engines,
            aliases: aliases.clone(),
            served: Mutex::new(served),
            pools: ArcSwap::default(),
        };
        fleet.rebuild(&fleet.lock());
        fleet
    }

    /// All engines, in the order of the configuration.
    pub fn engines(&self) -> &[Arc<Engine>] {
        &self.engines
    }

    /// The engine that people call this: by its name, or by its label.
    pub fn named(&self, name: &str) -> Option<Arc<Engine>> {
        let mut engines = self.engines.iter();
        let is_it = |engine: &&Arc<Engine>| engine.name() == name || **engine.label() == *name;
        engines.find(is_it).cloned()
    }

    /// From the name clients ask for to the model.
    pub fn aliases(&self) -> &BTreeMap<String, String> {
        &self.aliases
    }

    /// The pool of requests that name no model.
    pub fn any(&self) -> &Arc<Pool> {
        &self.any
    }

    /// Finds the engines that serve `name`, a model or an alias of one.
    pub fn find(&self, name: &str) -> Lookup {
        let model = self.aliases.get(name);
        let pools = self.pools.load();
        match pools.get(model.map_or(name, String::as_str)) {
            Some(pool) if pool.is_empty() => Lookup::NoEngine,
            Some(pool) => Lookup::Pool(Arc::clone(pool), model.is_some()),
            None if model.is_some() || self.lock().iter().any(Option::is_none) => Lookup::NoEngine,
            None => Lookup::Unknown,
        }
    }

    /// Whether `engine` serves `model`, as far as is known.
    pub fn serves(&self, engine: EngineId, model: &str) -> bool {
        self.pools
            .load()
            .get(model)
            .is_some_and(|pool| pool.ids().contains(&engine))
    }

    /// The models an engine serves, as far as is known.
    pub fn models_of(&self, engine: EngineId) -> Vec<String> {
        let served = self.lock();
        let place = self.engines.iter().position(|known| known.id() == engine);
        place
            .and_then(|place| served.get(place).cloned().flatten())
            .unwrap_or_default()
    }

    /// Takes note of what an engine says it serves.
    pub fn learn(&self, engine: EngineId, models: Vec<String>) {
        let Some(place) = self.engines.iter().position(|known| known.id() == engine) else {
            return;
        };
        let mut served = self.lock();
        if let Some(known) = served.get_mut(place)
            && known.as_ref() != Some(&models)
        {
            *known = Some(models);
            self.rebuild(&served);
        }
    }

    /// Builds the pools anew. A model keeps what its pool has
    /// counted and learnt, and stays known after its last engine.
    fn rebuild(&self, served: &[Option<Vec<String>>]) {
        let before = self.pools.load();
        let mut members: BTreeMap<&str, Vec<Arc<Engine>>> = before
            .keys()
            .map(|model| (model.as_str(), Vec::new()))
            .collect();
        for (engine, models) in self.engines.iter().zip(served) {
            for model in models.iter().flatten() {
                let engines = members.entry(model).or_default();
                if !engines.iter().any(|known| known.id() == engine.id()) {
                    engines.push(Arc::clone(engine));
                }
            }
        }
        let pools = members.into_iter().map(|(model, engines)| {
            let before = before.get(model).map(|pool| &**pool);
            let pool = Pool::new(model.into(), engines, &self.logics, before);
            (model.to_owned(), Arc::new(pool))
        });
        self.pools.store(Arc::new(pools.collect()));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Option<Vec<String>>>> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retry::{Attempts, Resend};
    use crate::routing::Ask;

    fn spec(port: u16, models: &[&str]) -> EngineSpec {
        let url = format!("http://127.0.0.1:{port}").parse().unwrap();
        EngineSpec::new(
            url,
            models.iter().map(|model| (*model).to_owned()).collect(),
        )
    }

    fn ports(fleet: &Fleet, name: &str) -> Vec<u16> {
        match fleet.find(name) {
            Lookup::Pool(pool, _) => pool.engines().map(|e| e.url().port()).collect(),
            other => panic!("{name}: {other:?}"),
        }
    }

    #[test]
    fn a_model_leads_to_the_engines_that_serve_it() {
        let aliases = BTreeMap::from([("gpt".to_owned(), "m".to_owned())]);
        let fleet = Fleet::new(
            &[spec(1, &["m", "x"]), spec(2, &["m"]), spec(3, &["x"])],
            &aliases,
            Routing::default(),
        );
        assert_eq!(ports(&fleet, "m"), [1, 2]);
        assert_eq!(ports(&fleet, "x"), [1, 3]);
        assert_eq!(ports(&fleet, "gpt"), [1, 2]);
        assert!(matches!(fleet.find("gpt"), Lookup::Pool(pool, true) if &**pool.model() == "m"));
        assert!(matches!(fleet.find("nope"), Lookup::Unknown));
    }

    #[test]
    fn a_model_may_belong_to_an_engine_that_was_not_heard_yet() {
        let fleet = Fleet::new(
            &[spec(1, &["m"]), spec(2, &[])],
            &BTreeMap::new(),
            Routing::default(),
        );
        assert!(matches!(fleet.find("later"), Lookup::NoEngine));
        let second = fleet.engines()[1].id();
        fleet.learn(second, vec!["later".to_owned()]);
        assert_eq!(ports(&fleet, "later"), [2]);
        assert!(matches!(fleet.find("nope"), Lookup::Unknown));
    }

    #[test]
    fn a_model_stays_known_after_its_last_engine_dropped_it() {
        let fleet = Fleet::new(&[spec(1, &[])], &BTreeMap::new(), Routing::default());
        let engine = fleet.engines()[0].id();
        fleet.learn(engine, vec!["m".to_owned()]);
        fleet.learn(engine, vec![]);
        assert!(matches!(fleet.find("m"), Lookup::NoEngine));
    }

    #[test]
    fn an_engine_is_called_by_its_name_or_its_url() {
        let mut specs = [spec(1, &["m"]), spec(2, &["m"])];
        for (number, spec) in specs.iter_mut().enumerate() {
            spec.id = Some(number.to_string());
        }
        let fleet = Fleet::new(&specs, &BTreeMap::new(), Routing::default());
        let port = |name: &str| fleet.named(name).map(|engine| engine.url().port());
        assert_eq!(port("0"), Some(1));
        assert_eq!(port("1"), Some(2));
        assert_eq!(port("http://127.0.0.1:2"), Some(2));
        for name in ["", "2", "00", "+1", "127.0.0.1:2", "http://127.0.0.1:2/"] {
            assert_eq!(port(name), None, "{name}");
        }
    }

    #[test]
    fn each_model_has_a_turn_of_its_own_that_survives_changes() {
        let fleet = Fleet::new(
            &[spec(1, &["m"]), spec(2, &["m"]), spec(3, &[])],
            &BTreeMap::new(),
            Routing::default(),
        );
        let first = |fleet: &Fleet| match fleet.find("m") {
            Lookup::Pool(pool, _) => pool
                .place(&Attempts::new(None, Resend::Always), &Ask::default())
                .unwrap()
                .0
                .url()
                .port(),
            other => panic!("{other:?}"),
        };
        assert_eq!(first(&fleet), 1);
        fleet.learn(fleet.engines()[2].id(), vec!["other".to_owned()]);
        assert_eq!(first(&fleet), 2);
    }
}
