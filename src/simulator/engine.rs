//! One simulated engine: everything its connections share.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;

use super::adapters::Adapters;
use super::behaviour::{Behaviour, BehaviourError};
use super::ledger::Ledger;
use super::metrics::{Gauges, Metrics};
use super::plan::{Plan, Planner};
use super::responses::Responses;
use super::sleep::Sleep;
use super::slots::Slots;

/// What a simulated engine is for as long as it runs.
#[derive(Clone, Debug)]
pub struct SimulatorConfig {
    /// The address to listen on.
    pub host: String,
    /// The port; 0 takes a free one.
    pub port: u16,
    /// The served model names; the first answers requests that name none.
    pub models: Vec<String>,
    /// The key `/v1/…` asks for; `None` asks for none.
    pub api_key: Option<String>,
    /// How long an idle connection stays open after an answer.
    pub keep_alive: Duration,
    /// The longest prompt and the longest answer, in tokens.
    pub max_model_len: u32,
    /// What can be changed while it runs.
    pub behaviour: Behaviour,
}

/// The shared state of one engine.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) config: SimulatorConfig,
    pub(super) port: u16,
    /// The model names as JSON text without quotes, in the order of the configuration.
    pub(super) model_json: Vec<Arc<str>>,
    pub(super) adapters: Adapters,
    pub(super) responses: Responses,
    pub(super) sleep: Sleep,
    pub(super) slots: Arc<Slots>,
    pub(super) ledger: Ledger,
    pub(super) metrics: Metrics,
    planner: Mutex<Planner>,
    paused: watch::Sender<bool>,
}

// === impl SimulatorConfig ===

impl Default for SimulatorConfig {
    /// One model `m` on a free port of the loopback address.
    fn default() -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port: 0,
            models: vec!["m".to_owned()],
            api_key: None,
            keep_alive: Duration::from_secs(5),
            max_model_len: 131_072,
            behaviour: Behaviour::default(),
        }
    }
}

// === impl Engine ===

impl Engine {
    pub(super) fn new(config: SimulatorConfig, port: u16) -> io::Result<Self> {
        if config.models.is_empty() || config.models.iter().any(String::is_empty) {
            let text = "models: at least one name is needed, and none may be empty";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let behaviour = &config.behaviour;
        Ok(Self {
            port,
            model_json: config
                .models
                .iter()
                .map(|model| json_text(model).into())
                .collect(),
            adapters: Adapters::default(),
            responses: Responses::default(),
            sleep: Sleep::default(),
            slots: Slots::new(behaviour.max_num_seqs, behaviour.max_num_queued_reqs),
            ledger: Ledger::default(),
            metrics: Metrics::new(),
            paused: watch::Sender::new(behaviour.paused),
            planner: Mutex::new(Planner::new(behaviour.clone())),
            config,
        })
    }

    pub(super) fn behaviour(&self) -> Arc<Behaviour> {
        self.planner().behaviour()
    }

    pub(super) fn plan(&self) -> (Plan, Arc<Behaviour>) {
        self.planner().next()
    }

    /// Changes the behaviour; requests planned before keep their plan.
    pub(super) fn change(&self, change: &Value) -> Result<(), BehaviourError> {
        let mut planner = self.planner();
        let behaviour = planner.change(change)?;
        self.slots
            .set_limits(behaviour.max_num_seqs, behaviour.max_num_queued_reqs);
        self.paused.send_replace(behaviour.paused);
        Ok(())
    }

    pub(super) fn is_paused(&self) -> bool {
        *self.paused.borrow()
    }

    /// Waits until accepting is not paused.
    pub(super) async fn resumed(&self) {
        let mut paused = self.paused.subscribe();
        // It cannot fail: the sender lives as long as `self`.
        drop(paused.wait_for(|paused| !paused).await);
    }

    pub(super) fn gauges(&self) -> Gauges {
        let (running, waiting) = self.slots.gauges();
        Gauges {
            running,
            waiting,
            max_running: self.behaviour().max_num_seqs,
        }
    }

    /// What `GET /sim` shows.
    pub(super) fn status(&self) -> Value {
        let (running, waiting) = self.slots.gauges();
        let mut status = self.ledger.counts().to_json();
        if let Value::Object(object) = &mut status {
            object.insert("running".to_owned(), json!(running));
            object.insert("waiting".to_owned(), json!(waiting));
            object.insert("port".to_owned(), json!(self.port));
            object.insert("models".to_owned(), json!(self.config.models));
            object.insert("behaviour".to_owned(), self.behaviour().to_json());
        }
        status
    }

    fn planner(&self) -> MutexGuard<'_, Planner> {
        self.planner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A text as it stands between the quotes of a JSON string.
pub(super) fn json_text(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    let inner = quoted
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    inner.unwrap_or_default().to_owned()
}
