//! The engines of one moment, and which of them serve which model.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::{Engine, EngineId, Pool};
use crate::words::Words;

/// What a model name leads to.
#[derive(Debug)]
pub enum Lookup {
    /// The engines that serve it, and whether the name is an alias.
    Pool(Arc<Pool>, bool),
    /// It is known, and no engine serves it now; or engines that may serve it have not been heard.
    /// The pool is that of the model, and empty; whether the name is an alias.
    NoEngine(Arc<Pool>, bool),
    /// Nobody serves it.
    Unknown,
}

/// The engines of one moment.
#[derive(Debug, Default)]
pub(super) struct Roster {
    pub(super) engines: Arc<[Arc<Engine>]>,
    /// Those that are gone, but for what ran on them.
    pub(super) leaving: Vec<Arc<Engine>>,
    /// From the name clients ask for to the model.
    pub(super) aliases: BTreeMap<String, String>,
    pub(super) pools: Words<Arc<Pool>>,
    /// The pool of requests that name no model.
    pub(super) any: Arc<Pool>,
    /// What some engine serves has not been learnt, or some engine has not been found.
    has_unheard: bool,
}

impl Roster {
    /// The roster of these engines after `before`; `pool` makes the pool of a model, after the
    /// one it had. Unless they are complete, there may be more of them. A model stays known after its last engine.
    pub(super) fn new(
        engines: Vec<Arc<Engine>>,
        leaving: Vec<Arc<Engine>>,
        aliases: BTreeMap<String, String>,
        served: &HashMap<EngineId, Vec<String>>,
        is_complete: bool,
        before: &Self,
        pool: impl Fn(Arc<str>, Vec<Arc<Engine>>, Option<&Pool>) -> Pool,
    ) -> Self {
        let mut members: BTreeMap<&str, Vec<Arc<Engine>>> = before
            .pools
            .keys()
            .map(|model| (&**model, Vec::new()))
            .collect();
        for engine in &engines {
            for model in served.get(&engine.id()).into_iter().flatten() {
                let engines = members.entry(model).or_default();
                if !engines.iter().any(|known| known.id() == engine.id()) {
                    engines.push(Arc::clone(engine));
                }
            }
        }
        let pools = members.into_iter().map(|(model, engines)| {
            let before = before.pools.get(model).map(|pool| &**pool);
            let name: Arc<str> = model.into();
            let pool = pool(Arc::clone(&name), engines, before);
            (name, Arc::new(pool))
        });
        Self {
            pools: pools.collect(),
            any: Arc::new(pool("".into(), engines.clone(), Some(&before.any))),
            has_unheard: !is_complete
                || engines.is_empty()
                || engines.iter().any(|e| !served.contains_key(&e.id())),
            engines: engines.into(),
            leaving,
            aliases,
        }
    }

    /// Finds the engines that serve `name`, a model or an alias of one.
    pub(super) fn find(&self, name: &str) -> Lookup {
        let target = self.aliases.get(name);
        let (model, is_alias) = (target.map_or(name, String::as_str), target.is_some());
        match self.pools.get(model) {
            Some(pool) if pool.is_empty() => Lookup::NoEngine(Arc::clone(pool), is_alias),
            Some(pool) => Lookup::Pool(Arc::clone(pool), is_alias),
            None if is_alias || self.has_unheard => {
                Lookup::NoEngine(Arc::new(Pool::of_nobody(model)), is_alias)
            }
            None => Lookup::Unknown,
        }
    }
}
