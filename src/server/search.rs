//! The search for engines, which may change its ways at any time.

use std::sync::Arc;

use tokio::sync::watch;

use crate::config::Settings;
use crate::discovery::{Discovery, Found, Resolver};
use crate::engines::{Fleet, attend};

/// Keeps a fleet supplied with engines, and those with addresses.
#[derive(Debug)]
pub struct Search {
    fleet: Arc<Fleet>,
    ways: watch::Sender<Arc<Ways>>,
}

/// How engines are found and names looked up.
#[derive(Debug)]
struct Ways {
    discovery: Discovery,
    resolver: Resolver,
}

impl Search {
    /// The search for the engines of `fleet` under these settings. Those that are listed are found
    /// by this.
    pub fn new(settings: &Settings, fleet: &Arc<Fleet>) -> Self {
        fleet.update(&listed(settings));
        Self {
            fleet: Arc::clone(fleet),
            ways: watch::Sender::new(Arc::new(Ways::new(settings))),
        }
    }

    /// Goes by these settings from now on. Engines that were found in another way stay until the
    /// new one has found all there are.
    pub fn adopt(&self, settings: &Settings) {
        let is_other = |ways: &Ways| {
            ways.discovery != settings.discovery || *ways.resolver.settings() != settings.dns
        };
        self.ways.send_if_modified(|ways| {
            let changes = is_other(ways);
            if changes {
                *ways = Arc::new(Ways::new(settings));
            }
            // While the ways are held: what was found in the old one comes before, or not at all.
            if changes || settings.discovery == Discovery::Static {
                self.fleet.update(&listed(settings));
            }
            changes
        });
    }

    /// Searches, and looks names up as their answers run out, for ever.
    pub async fn run(&self) {
        let mut changes = self.ways.subscribe();
        loop {
            let ways = Arc::clone(&changes.borrow_and_update());
            tokio::select! {
                _ = changes.changed() => {}
                () = ways.discovery.run(&ways.resolver, |found| self.found(&ways, &found)) => {}
                () = self.follow_names(&ways.resolver) => {}
            }
        }
    }

    /// Looks the names of all engines up once.
    pub async fn resolve(&self) {
        let ways = Arc::clone(&self.ways.borrow());
        let engines = self.fleet.engines();
        let looking = engines.iter().map(async |engine| {
            let Some(question) = engine.question() else {
                return;
            };
            match ways.resolver.ask(&question).await {
                Ok(answer) => engine.moved(&answer.places),
                // The one who follows the name tells of it.
                Err(error) => log::debug!("engine={} is not resolved: {error}", engine.label()),
            }
        });
        futures::future::join_all(looking).await;
    }

    async fn follow_names(&self, resolver: &Resolver) {
        attend(&self.fleet, |engine| async move {
            let Some(question) = engine.question() else {
                return;
            };
            let moved = |answer: Result<&[_], &_>| {
                if let Ok(places) = answer {
                    engine.moved(places);
                }
            };
            resolver.follow(&question, moved).await;
        })
        .await;
    }

    /// Tells the fleet what was found in these ways, if they still are the ones to go.
    fn found(&self, ways: &Arc<Ways>, found: &Found) {
        let now = self.ways.borrow();
        if Arc::ptr_eq(&now, ways) {
            self.fleet.update(found);
        }
    }
}

impl Ways {
    fn new(settings: &Settings) -> Self {
        Self {
            discovery: settings.discovery.clone(),
            resolver: Resolver::new(settings.dns.clone()),
        }
    }
}

/// What is known of the engines by the settings alone.
fn listed(settings: &Settings) -> Found {
    match settings.discovery {
        Discovery::Static => Found::all(settings.engines.clone()),
        _ => Found::default(),
    }
}
