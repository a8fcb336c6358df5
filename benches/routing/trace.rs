//! Who asks: tenants with a prompt of their own, their users, and the documents these share.

use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::blocks::{Author, BlockId, blocks, mixed};
use super::conversation::Conversation;
use super::draws::{Spread, Zipf};

/// Applications behind the router; few of them make most of the traffic.
const TENANTS: usize = 25;
const TENANT_SKEW: f64 = 0.9;
/// Users for each engine; some ask much more than others.
const USERS_PER_ENGINE: usize = 120;
const USER_SKEW: f64 = 0.6;
/// Tokens of a tenant's system prompt and tools: 6 KiB in the median.
const SYSTEM: Spread = Spread {
    median: 1500.0,
    sigma: 0.7,
    least: 256.0,
    most: 8000.0,
};
/// Documents of a tenant, the share of conversations about one, and their tokens.
const DOCUMENTS: usize = 30;
const DOCUMENT_SKEW: f64 = 0.8;
const ABOUT_DOCUMENT: f64 = 0.3;
const DOCUMENT: Spread = Spread {
    median: 3000.0,
    sigma: 0.6,
    least: 500.0,
    most: 12_000.0,
};

/// All who may ask.
#[derive(Debug)]
pub struct Trace {
    seed: u64,
    popularity: Zipf,
    documents: Zipf,
    tenants: Vec<Tenant>,
    begun: u64,
    dice: StdRng,
}

#[derive(Debug)]
struct Tenant {
    users: Vec<Arc<str>>,
    activity: Zipf,
    /// How prompts begin: the system prompt alone, and with each of the documents.
    beginnings: Vec<Arc<[BlockId]>>,
}

impl Trace {
    /// The trace of a seed for so many engines: the same conversations whoever answers them.
    pub fn new(seed: u64, engines: usize) -> Self {
        let mut dice = StdRng::seed_from_u64(mixed(seed));
        let popularity = Zipf::new(TENANTS, TENANT_SKEW);
        let tenants = (0..TENANTS)
            .map(|number| {
                let users = (engines * USERS_PER_ENGINE) as f64 * popularity.share(number);
                Tenant::new(number, users.ceil() as usize, &mut dice)
            })
            .collect();
        Self {
            seed,
            popularity,
            documents: Zipf::new(DOCUMENTS, DOCUMENT_SKEW),
            tenants,
            begun: 0,
            dice,
        }
    }

    /// The next conversation somebody begins.
    pub fn begin(&mut self) -> Conversation {
        self.begun += 1;
        let dice = &mut self.dice;
        let tenant = &self.tenants[self.popularity.draw(dice)];
        let user = &tenant.users[tenant.activity.draw(dice)];
        let beginning = if dice.random_bool(ABOUT_DOCUMENT) {
            1 + self.documents.draw(dice)
        } else {
            0
        };
        let dice = StdRng::seed_from_u64(mixed(self.seed << 32 ^ self.begun));
        Conversation::new(self.begun, user, &tenant.beginnings[beginning], dice)
    }
}

impl Tenant {
    fn new(number: usize, users: usize, dice: &mut StdRng) -> Self {
        // Conversations are numbered from 1 on, and stay far below.
        let mut author = Author::new((1 << 38) + number as u64);
        let mut system = Vec::new();
        author.write(&mut system, blocks(SYSTEM.draw(dice)));
        let mut beginnings = vec![system.clone().into()];
        for _ in 0..DOCUMENTS {
            let mut beginning = system.clone();
            author.write(&mut beginning, blocks(DOCUMENT.draw(dice)));
            beginnings.push(beginning.into());
        }
        Self {
            users: (0..users)
                .map(|user| format!("tenant-{number}-user-{user}").into())
                .collect(),
            activity: Zipf::new(users, USER_SKEW),
            beginnings,
        }
    }
}
