//! `LoRA` adapters, loaded and unloaded while the engine runs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Deserialize;

use super::ask;
use super::connection::Request;
use super::engine::json_text;
use super::reply::Reply;

/// One adapter.
#[derive(Clone, Debug)]
pub(super) struct Adapter {
    pub(super) name: String,
    pub(super) path: String,
    /// The name as JSON text without quotes.
    pub(super) json: Arc<str>,
}

/// The adapters of an engine, in the order they were loaded.
#[derive(Debug, Default)]
pub(super) struct Adapters(Mutex<Vec<Adapter>>);

#[derive(Deserialize)]
struct LoadRequest {
    lora_name: Option<String>,
    lora_path: Option<String>,
    load_inplace: Option<bool>,
}

#[derive(Deserialize)]
struct UnloadRequest {
    lora_name: Option<String>,
}

impl Adapters {
    pub(super) fn all(&self) -> Vec<Adapter> {
        self.lock().clone()
    }

    /// The adapter of this name, as JSON text without quotes.
    pub(super) fn find(&self, name: &str) -> Option<Arc<str>> {
        let adapters = self.lock();
        let found = adapters.iter().find(|adapter| adapter.name == name);
        found.map(|adapter| Arc::clone(&adapter.json))
    }

    /// Loads one; `models` are the names that are taken.
    pub(super) fn load(&self, models: &[String], request: &Request) -> Result<Reply, Reply> {
        let body: LoadRequest = ask::read_json(request)?;
        let name = body.lora_name.ok_or_else(|| ask::missing("lora_name"))?;
        let path = body.lora_path.ok_or_else(|| ask::missing("lora_path"))?;
        if name.is_empty() || path.is_empty() {
            return Err(misuse("Both 'lora_name' and 'lora_path' must be provided."));
        }
        if models.contains(&name) {
            return Err(misuse(&format!(
                "The lora adapter '{name}' conflicts with a served base model."
            )));
        }
        let mut adapters = self.lock();
        let known = adapters.iter().position(|adapter| adapter.name == name);
        if known.is_some() && !body.load_inplace.unwrap_or(false) {
            return Err(misuse(&format!(
                "The lora adapter '{name}' has already been loaded. If you want to load the \
                 adapter in place, set 'load_inplace' to True."
            )));
        }
        let said = success(&name, "added");
        if let Some(known) = known {
            adapters.remove(known);
        }
        adapters.push(Adapter {
            json: json_text(&name).into(),
            name,
            path,
        });
        Ok(said)
    }

    /// Unloads one.
    pub(super) fn unload(&self, request: &Request) -> Result<Reply, Reply> {
        let body: UnloadRequest = ask::read_json(request)?;
        let name = body.lora_name.ok_or_else(|| ask::missing("lora_name"))?;
        let mut adapters = self.lock();
        let Some(known) = adapters.iter().position(|adapter| adapter.name == name) else {
            let text = format!("The lora adapter '{name}' cannot be found.");
            return Err(Reply::error(404, "NotFoundError", None, &text));
        };
        adapters.remove(known);
        Ok(success(&name, "removed"))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Adapter>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn success(name: &str, what: &str) -> Reply {
    Reply {
        content_type: None,
        ..Reply::json(
            200,
            format!("Success: LoRA adapter '{name}' {what} successfully."),
        )
    }
}

fn misuse(text: &str) -> Reply {
    Reply::error(400, "InvalidUserInput", None, text)
}
