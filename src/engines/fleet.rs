//! All engines, which come and go, and which of them serve which model.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use rand::RngExt as _;
use tokio::sync::watch;
use tokio::time::Instant;

use super::roster::{Lookup, Roster};
use super::{Condition, Engine, EngineId, Finding, HealthLimits, Pool};
use crate::config::EngineSpec;
use crate::discovery::Found;
use crate::retry::Failure;
use crate::routing::{Logics, Routing};

/// How a fleet's engines are chosen and judged.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Policy {
    /// How they are chosen.
    pub routing: Routing,
    /// When they are out.
    pub health: HealthLimits,
}

/// All engines and what they serve; a new roster is swapped in whenever that changes.
#[derive(Debug)]
pub struct Fleet {
    roster: ArcSwap<Roster>,
    /// Held while a new roster is made.
    register: Mutex<Register>,
    /// How often something has changed that requests may wait for: engines, models, conditions.
    changed: watch::Sender<u64>,
    /// What the time of the process is counted from.
    started: Instant,
    changes: Changes,
}

/// What rosters are made from.
#[derive(Debug)]
struct Register {
    /// The engines, and whether there may be others.
    found: Found,
    /// What each engine serves; none where it has never been learnt.
    served: HashMap<EngineId, Vec<String>>,
    policy: Policy,
    logics: Logics,
    /// No engine had this number yet.
    next: u32,
}

/// Who is told when an engine's condition changes.
#[derive(Default)]
struct Changes(OnceLock<OnChange>);

type OnChange = Box<dyn Fn(&Engine, Condition) + Send + Sync>;

impl std::fmt::Debug for Changes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Changes").finish_non_exhaustive()
    }
}

impl Fleet {
    /// The fleet of a configuration. Engines without models serve nothing until
    /// [`learn`](Self::learn).
    pub fn new(specs: &[EngineSpec], aliases: &BTreeMap<String, String>, policy: Policy) -> Self {
        let fleet = Self {
            roster: ArcSwap::default(),
            register: Mutex::new(Register {
                served: HashMap::new(),
                found: Found::default(),
                policy,
                logics: Logics::new(policy.routing),
                next: 0,
            }),
            changed: watch::Sender::new(0),
            started: Instant::now(),
            changes: Changes::default(),
        };
        fleet.adopt(aliases, policy);
        fleet.update(&Found::all(specs.to_vec()));
        fleet
    }

    /// Takes on the rest of a new configuration; the engines stay.
    pub fn adopt(&self, aliases: &BTreeMap<String, String>, policy: Policy) {
        let mut register = self.lock();
        register.logics = register.logics.changed(policy.routing);
        register.policy = policy;
        self.muster(&mut register, aliases.clone());
    }

    /// Takes on other engines, under the configuration as it is. Those that stay keep all that is
    /// known of them, those that are gone get no more attempts, and what runs on them runs on.
    ///
    /// Whoever is missing in a list that is not complete is not gone, but may be yet to come.
    pub fn update(&self, found: &Found) {
        let mut register = self.lock();
        let found = found.after(&register.found);
        if found == register.found {
            return;
        }
        register.found = found;
        let aliases = self.roster.load().aliases.clone();
        self.muster(&mut register, aliases);
    }

    /// Makes the roster of what has been found.
    fn muster(&self, register: &mut Register, aliases: BTreeMap<String, String>) {
        let before = self.roster.load_full();
        let limits = register.policy.health;
        let specs = register.found.engines.iter();
        let engines: Vec<_> = specs
            .map(|spec| {
                let known = before.engines.iter().find(|engine| engine.is(spec));
                let engine = if let Some(known) = known {
                    known.respecified(spec, &limits)
                } else {
                    let id = EngineId::new(register.next);
                    register.next = register.next.saturating_add(1);
                    let engine = Engine::new(id, spec, &limits);
                    log::info!("engine={} joined the fleet", engine.label());
                    engine
                };
                if engine.declares_models() {
                    register.served.insert(engine.id(), spec.models.clone());
                }
                Arc::new(engine)
            })
            .collect();
        let stays = |engine: &Arc<Engine>| engines.iter().any(|now| now.id() == engine.id());
        let mut leaving = before.leaving.clone();
        for engine in before.engines.iter().filter(|engine| !stays(engine)) {
            log::info!("engine={} left the fleet", engine.label());
            engine.leave();
            register.served.remove(&engine.id());
            leaving.push(Arc::clone(engine));
        }
        leaving.retain(|engine| engine.in_flight() > 0);
        self.store(register, engines, leaving, aliases);
    }

    /// Makes the pools anew and lets requests see them.
    fn store(
        &self,
        register: &Register,
        engines: Vec<Arc<Engine>>,
        leaving: Vec<Arc<Engine>>,
        aliases: BTreeMap<String, String>,
    ) {
        let before = self.roster.load();
        let Register {
            found,
            served,
            policy,
            logics,
            ..
        } = register;
        let roster = Roster::new(
            engines,
            leaving,
            aliases,
            served,
            found.is_complete,
            &before,
            |model, engines, before| {
                Pool::new(model, engines, logics, policy.health.most_out, before)
            },
        );
        self.roster.store(Arc::new(roster));
        self.stir();
    }

    /// All engines, in the order of the configuration.
    pub fn engines(&self) -> Arc<[Arc<Engine>]> {
        Arc::clone(&self.roster.load().engines)
    }

    /// Engines that are gone, but for what still runs on them.
    pub fn leaving(&self) -> Vec<Arc<Engine>> {
        let mut leaving = self.roster.load().leaving.clone();
        leaving.retain(|engine| engine.in_flight() > 0);
        leaving
    }

    /// The time since the process started, which routing and health count by.
    pub fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// The same at another time.
    pub fn at(&self, time: Instant) -> Duration {
        time.duration_since(self.started)
    }

    /// Changes whenever engines come, go, change their condition or what they serve.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    fn stir(&self) {
        self.changed
            .send_modify(|changes| *changes = changes.wrapping_add(1));
    }

    /// Tells `changes` of every change of an engine's condition; only the first one is told.
    pub fn on_change(&self, changes: impl Fn(&Engine, Condition) + Send + Sync + 'static) {
        let _ = self.changes.0.set(Box::new(changes));
    }

    /// A request failed on `engine`.
    pub fn failed(&self, engine: &Engine, failure: Failure) {
        let changed = engine.failed(failure, self.now(), rand::rng().random());
        self.tell(engine, changed);
    }

    /// `engine` answered a request with this status.
    pub fn answered(&self, engine: &Engine, status: u16) {
        let changed = engine.answered(status, self.now(), rand::rng().random());
        self.tell(engine, changed);
    }

    /// `engine` was probed. Its new condition, if that changed.
    pub fn probed(&self, engine: &Engine, found: Finding) -> Option<Condition> {
        let changed = engine.probed(found, self.now());
        self.tell(engine, changed);
        changed
    }

    /// `engine` was made to work: whether it did.
    pub fn inferred(&self, engine: &Engine, works: bool) {
        let changed = engine.inferred(works, self.now());
        self.tell(engine, changed);
    }

    /// `engine` fell asleep, or woke up. Whether that is news.
    pub fn sleeps(&self, engine: &Engine, asleep: bool) -> bool {
        let changed = engine.sleeps(asleep, self.now());
        self.tell(engine, changed);
        changed.is_some()
    }

    /// Whoever asked `engine` found that it takes no connection.
    pub fn unreachable(&self, engine: &Engine, failure: Failure) {
        let changed = engine.unreachable(failure, self.now());
        self.tell(engine, changed);
    }

    fn tell(&self, engine: &Engine, changed: Option<Condition>) {
        let Some(condition) = changed else {
            return;
        };
        let (label, word) = (engine.label(), condition.label());
        let level = if condition.is_trouble() {
            log::Level::Warn
        } else {
            log::Level::Info
        };
        let reason = condition.reason();
        log::log!(level, "engine={label} condition={word} reason={reason}");
        if let Some(told) = self.changes.0.get() {
            told(engine, condition);
        }
        self.stir();
    }

    /// The engine that people call this: by its name, or by its label.
    pub fn named(&self, name: &str) -> Option<Arc<Engine>> {
        let roster = self.roster.load();
        let mut engines = roster.engines.iter();
        let is_it = |engine: &&Arc<Engine>| engine.name() == name || **engine.label() == *name;
        engines.find(is_it).cloned()
    }

    /// From the name clients ask for to the model.
    pub fn aliases(&self) -> BTreeMap<String, String> {
        self.roster.load().aliases.clone()
    }

    /// The pool of requests that name no model.
    pub fn any(&self) -> Arc<Pool> {
        Arc::clone(&self.roster.load().any)
    }

    /// Finds the engines that serve `name`, a model or an alias of one.
    pub fn find(&self, name: &str) -> Lookup {
        self.roster.load().find(name)
    }

    /// The pool as it is now that was `pool` when a request began.
    pub fn renewed(&self, pool: &Arc<Pool>) -> Arc<Pool> {
        if pool.is_pinned() {
            return Arc::clone(pool);
        }
        let roster = self.roster.load();
        let now = match &**pool.model() {
            "" => Some(&roster.any),
            model => roster.pools.get(model),
        };
        // A model stays known, so its pool is always there.
        Arc::clone(now.unwrap_or(pool))
    }

    /// Whether `engine` serves `model`, as far as is known.
    pub fn serves(&self, engine: EngineId, model: &str) -> bool {
        let roster = self.roster.load();
        let pool = roster.pools.get(model);
        pool.is_some_and(|pool| pool.ids().contains(&engine))
    }

    /// The models an engine serves, as far as is known.
    pub fn models_of(&self, engine: EngineId) -> Vec<String> {
        self.lock().served.get(&engine).cloned().unwrap_or_default()
    }

    /// The engines whose models are asked for, as the configuration does not say.
    pub fn silent(&self) -> Vec<Arc<Engine>> {
        let roster = self.roster.load();
        let silent = roster.engines.iter().filter(|e| !e.declares_models());
        silent.cloned().collect()
    }

    /// Whether this is one of those.
    pub fn is_silent(&self, engine: EngineId) -> bool {
        let roster = self.roster.load();
        let mut engines = roster.engines.iter();
        engines.any(|e| e.id() == engine && !e.declares_models())
    }

    /// Whether it is known what this engine serves.
    pub fn is_heard(&self, engine: EngineId) -> bool {
        self.lock().served.contains_key(&engine)
    }

    /// Waits until all engines have been found, as far as that can be said.
    pub async fn complete(&self) {
        // It fails only without a sender, and we are one.
        let mut changes = self.watch();
        while !self.lock().found.is_complete && changes.changed().await.is_ok() {}
    }

    /// Takes note of what an engine says it serves.
    pub fn learn(&self, engine: &Engine, models: Vec<String>) {
        let changed = engine.listed(!models.is_empty(), self.now());
        self.register(engine.id(), models);
        self.tell(engine, changed);
    }

    fn register(&self, engine: EngineId, models: Vec<String>) {
        let mut register = self.lock();
        let roster = self.roster.load_full();
        let belongs = roster.engines.iter().any(|known| known.id() == engine);
        let served = register.served.get(&engine);
        // One that has nothing to serve yet has not been heard.
        let is_news = served.map_or(!models.is_empty(), |served| *served != models);
        if !belongs || !is_news {
            return;
        }
        register.served.insert(engine, models);
        self.store(
            &register,
            roster.engines.to_vec(),
            roster.leaving.clone(),
            roster.aliases.clone(),
        );
    }

    fn lock(&self) -> MutexGuard<'_, Register> {
        self.register.lock().unwrap_or_else(PoisonError::into_inner)
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
            Policy::default(),
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
            Policy::default(),
        );
        assert!(matches!(fleet.find("later"), Lookup::NoEngine(..)));
        fleet.learn(&fleet.engines()[1], vec!["later".to_owned()]);
        assert_eq!(ports(&fleet, "later"), [2]);
        assert!(matches!(fleet.find("nope"), Lookup::Unknown));
    }

    #[test]
    fn where_engines_may_be_missing_any_model_may_be_served() {
        let fleet = Fleet::new(&[], &BTreeMap::new(), Policy::default());
        let leads_nowhere = || matches!(fleet.find("x"), Lookup::NoEngine(..));
        assert!(leads_nowhere(), "there is no engine at all");
        let mut some = Found {
            engines: vec![spec(1, &["m"])],
            is_complete: false,
        };
        fleet.update(&some);
        assert_eq!(ports(&fleet, "m"), [1]);
        assert!(leads_nowhere(), "there may be others");
        some.is_complete = true;
        fleet.update(&some);
        assert!(matches!(fleet.find("x"), Lookup::Unknown));
        fleet.update(&Found::default());
        assert_eq!(ports(&fleet, "m"), [1], "nobody is said to be gone");
        fleet.update(&Found::all(Vec::new()));
        assert!(matches!(fleet.find("m"), Lookup::NoEngine(..)));
    }

    #[test]
    fn what_was_found_before_is_no_change() {
        let fleet = Fleet::new(&[spec(1, &["m"])], &BTreeMap::new(), Policy::default());
        let changes = fleet.watch();
        fleet.update(&Found::all(vec![spec(1, &["m"])]));
        assert!(!changes.has_changed().unwrap());
        fleet.update(&Found::all(vec![spec(2, &["m"])]));
        assert!(changes.has_changed().unwrap());
    }

    #[test]
    fn a_model_stays_known_after_its_last_engine_dropped_it() {
        let fleet = Fleet::new(&[spec(1, &[])], &BTreeMap::new(), Policy::default());
        let engine = &fleet.engines()[0];
        fleet.learn(engine, vec!["m".to_owned()]);
        fleet.learn(engine, vec![]);
        assert!(matches!(fleet.find("m"), Lookup::NoEngine(..)));
    }

    #[test]
    fn an_engine_is_called_by_its_name_or_its_url() {
        let mut specs = [spec(1, &["m"]), spec(2, &["m"])];
        for (number, spec) in specs.iter_mut().enumerate() {
            spec.id = Some(number.to_string());
        }
        let fleet = Fleet::new(&specs, &BTreeMap::new(), Policy::default());
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
            Policy::default(),
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
        fleet.learn(&fleet.engines()[2], vec!["other".to_owned()]);
        assert_eq!(first(&fleet), 2);
    }
}
