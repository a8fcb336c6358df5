//! Looks after every engine of a fleet as long as it belongs to it.

use std::collections::HashMap;
use std::sync::Arc;

use futures::StreamExt as _;
use futures::future::{AbortHandle, abortable};
use futures::stream::FuturesUnordered;

use super::{Engine, EngineId, Fleet};

/// Runs `task` for each engine: from when it joins the fleet, or now, until it leaves. Goes on for
/// ever.
pub async fn attend<T: Future<Output = ()>>(fleet: &Fleet, task: impl Fn(Arc<Engine>) -> T) {
    let mut changes = fleet.watch();
    let mut running = FuturesUnordered::new();
    let mut handles: HashMap<EngineId, AbortHandle> = HashMap::new();
    loop {
        let engines = fleet.engines();
        handles.retain(|id, handle| {
            let stays = engines.iter().any(|engine| engine.id() == *id);
            if !stays {
                handle.abort();
            }
            stays
        });
        for engine in &*engines {
            handles.entry(engine.id()).or_insert_with(|| {
                let (task, handle) = abortable(task(Arc::clone(engine)));
                running.push(task);
                handle
            });
        }
        loop {
            tokio::select! {
                moved = changes.changed() => {
                    if moved.is_err() {
                        return;
                    }
                    break;
                }
                Some(_) = running.next() => {}
            }
        }
    }
}
