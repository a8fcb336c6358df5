//! What the engines say they serve.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use serde_json::value::RawValue;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::{
    AskError, Asker, Condition, Engine, EngineId, EngineKey, Fleet, IS_SLEEPING, Pool, Sleep,
};

/// How long an answer is good for: a burst of clients asking for the models, or of probes, costs
/// the engines one question each.
const FRESH: Duration = Duration::from_secs(1);

/// One model as an engine describes it.
#[derive(Clone, Debug)]
pub struct ModelEntry {
    /// Its name.
    pub id: String,
    /// The engine's JSON object, byte for byte.
    pub json: Box<RawValue>,
}

#[derive(serde::Deserialize)]
struct List {
    data: Vec<Box<RawValue>>,
}

#[derive(serde::Deserialize)]
struct Id {
    id: String,
}

/// Why an engine's models are not known.
#[derive(Debug, thiserror::Error)]
enum Unlisted {
    /// It is not there.
    #[error(transparent)]
    NoAnswer(#[from] AskError),
    /// It asks for another key than this one.
    #[error("it answered {0}")]
    Refused(u16),
    /// It is there, and gave no list.
    #[error("it gave no list of models: {0}")]
    NoList(String),
}

/// Asks the engines, and remembers their answers for a second.
#[derive(Debug)]
pub struct Catalog {
    fleet: Arc<Fleet>,
    asker: Asker,
    key: Arc<EngineKey>,
    listing: Mutex<Option<(Instant, Arc<Vec<ModelEntry>>)>>,
    up: Mutex<Option<(Instant, usize)>>,
}

impl Catalog {
    /// A catalog of `fleet`; `key` is presented to engines that ask for one.
    pub fn new(fleet: Arc<Fleet>, key: Arc<EngineKey>, limit: Duration) -> Self {
        Self {
            fleet,
            asker: Asker::new(limit),
            key,
            listing: Mutex::default(),
            up: Mutex::default(),
        }
    }

    /// The models of all engines that answer now, each once, in the order of the engines; then
    /// the aliases of those. `client` is the client's own `Authorization`, for engines that ask
    /// for a key where the router has none; such an answer is for that client alone.
    pub async fn models(&self, client: Option<&[u8]>) -> Arc<Vec<ModelEntry>> {
        if self.key.authorization().is_none() && client.is_some() {
            return Arc::new(self.ask_all(client).await);
        }
        let mut listing = self.listing.lock().await;
        if let Some((at, models)) = &*listing
            && at.elapsed() < FRESH
        {
            return Arc::clone(models);
        }
        let models = Arc::new(self.ask_all(None).await);
        *listing = Some((Instant::now(), Arc::clone(&models)));
        models
    }

    /// How many engines are up now: they answer `/health`, and not with an error of theirs, and
    /// are not known to sleep.
    pub async fn engines_up(&self) -> usize {
        let mut up = self.up.lock().await;
        if let Some((at, count)) = *up
            && at.elapsed() < FRESH
        {
            return count;
        }
        let own = self.key.authorization();
        let own = own.as_deref().map(String::as_bytes);
        let healthy = async |engine: &Arc<Engine>| {
            let answer = self.asker.get(engine, "/health", own).await;
            matches!(answer, Ok((..500, _))) && engine.condition().0 != Condition::Sleeping
        };
        let count = join_all(self.fleet.engines().iter().map(healthy))
            .await
            .iter()
            .filter(|up| **up)
            .count();
        *up = Some((Instant::now(), count));
        count
    }

    /// Asks `engine` whether it sleeps.
    pub async fn ask_sleep(&self, engine: &Engine) -> Sleep {
        let own = self.key.authorization();
        let own = own.as_deref().map(String::as_bytes);
        Sleep::read(&self.asker.get(engine, IS_SLEEPING, own).await)
    }

    /// Which engine of `pool` has the response `id`; `client` is the client's own
    /// `Authorization`, for engines that ask for a key where the router has none.
    pub async fn find_response(
        &self,
        id: &str,
        pool: &Pool,
        client: Option<&[u8]>,
    ) -> Option<EngineId> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if id.is_empty() || !id.bytes().all(plain) {
            // It could not stand in a path as it is.
            return None;
        }
        let path = format!("/v1/responses/{id}");
        let own = self.key.authorization();
        let authorization = own.as_deref().map(String::as_bytes).or(client);
        let mut answers: FuturesUnordered<_> = pool
            .engines()
            .map(async |engine| {
                let answer = self.asker.get(engine, &path, authorization).await;
                (engine.id(), matches!(answer, Ok((200, _))))
            })
            .collect();
        while let Some((engine, has_it)) = answers.next().await {
            if has_it {
                return Some(engine);
            }
        }
        None
    }

    /// Asks the engines of this list for their models and tells the fleet.
    pub async fn learn(&self, engines: &[Arc<Engine>]) {
        join_all(
            engines
                .iter()
                .map(async |engine| match self.ask(engine, None).await {
                    Ok(models) => {
                        let ids = models.into_iter().map(|model| model.id).collect();
                        self.fleet.learn(engine, ids);
                    }
                    Err(Unlisted::NoAnswer(error)) if !engine.has_worked() => {
                        log::debug!("engine={} models=unknown error={error}", engine.label());
                        if let Some(failure) = error.connect_failure() {
                            self.fleet.unreachable(engine, failure);
                        }
                    }
                    Err(error) => {
                        log::warn!("engine={} models=unknown error={error}", engine.label());
                    }
                }),
        )
        .await;
    }

    /// Asks `engine` again what it serves, in the background: it has just denied a model that it
    /// was thought to serve. At most once in the time an answer is good for.
    pub fn doubt(self: &Arc<Self>, engine: &Arc<Engine>) {
        if !engine.doubt(self.fleet.now(), FRESH) {
            return;
        }
        log::info!("engine={} models=doubted", engine.label());
        let (catalog, engine) = (Arc::clone(self), Arc::clone(engine));
        tokio::spawn(async move {
            catalog.learn(&[engine]).await;
            catalog.forget().await;
        });
    }

    /// Forgets the listing, since engines have just been told to serve something else.
    pub async fn forget(&self) {
        *self.listing.lock().await = None;
    }

    async fn ask_all(&self, client: Option<&[u8]>) -> Vec<ModelEntry> {
        let engines = self.fleet.engines();
        let answers = join_all(engines.iter().map(|engine| self.ask(engine, client))).await;
        let mut seen = HashSet::new();
        let mut models = Vec::new();
        for (engine, answer) in engines.iter().zip(answers) {
            let offered = match answer {
                Ok(offered) => offered,
                // It lives, and what the configuration says of it stands.
                Err(Unlisted::NoList(_)) => Vec::new(),
                Err(error @ (Unlisted::NoAnswer(_) | Unlisted::Refused(_))) => {
                    log::debug!("engine={} left out of /v1/models: {error}", engine.label());
                    continue;
                }
            };
            // The configuration may say less than the engine does, or more.
            let declared = self.fleet.models_of(engine.id());
            let missing = declared
                .iter()
                .filter(|id| !offered.iter().any(|model| model.id == **id));
            let missing: Vec<_> = missing
                .filter_map(|id| described(id, "vllm", None))
                .collect();
            let routed = |model: &ModelEntry| self.fleet.serves(engine.id(), &model.id);
            models.extend(
                offered
                    .into_iter()
                    .filter(routed)
                    .chain(missing)
                    .filter(|m| seen.insert(m.id.clone())),
            );
        }
        let live = |target: &String| seen.contains(target);
        let aliases = self.fleet.aliases();
        let aliases = aliases.iter().filter(|(_, target)| live(target));
        models.extend(
            aliases.filter_map(|(alias, target)| described(alias, "vllm-pingora", Some(target))),
        );
        models
    }

    async fn ask(
        &self,
        engine: &Engine,
        client: Option<&[u8]>,
    ) -> Result<Vec<ModelEntry>, Unlisted> {
        let own = self.key.authorization();
        let authorization = own.as_deref().map(String::as_bytes).or(client);
        let answer = self.asker.get(engine, "/v1/models", authorization).await;
        let (status, body) = answer?;
        if matches!(status, 401 | 403) {
            return Err(Unlisted::Refused(status));
        }
        if status != 200 {
            return Err(Unlisted::NoList(format!("it answered {status}")));
        }
        let list = serde_json::from_slice(&body);
        let list: List = list.map_err(|error| Unlisted::NoList(error.to_string()))?;
        let entry = |json: Box<RawValue>| {
            let Id { id } = serde_json::from_str(json.get()).ok()?;
            Some(ModelEntry { id, json })
        };
        Ok(list.data.into_iter().filter_map(entry).collect())
    }
}

/// An entry for a model that no engine described.
fn described(id: &str, owner: &str, root: Option<&str>) -> Option<ModelEntry> {
    let json = serde_json::json!({
        "id": id,
        "object": "model",
        "created": 0,
        "owned_by": owner,
        "root": root.unwrap_or(id),
        "parent": null,
    });
    Some(ModelEntry {
        id: id.to_owned(),
        json: serde_json::value::to_raw_value(&json).ok()?,
    })
}
