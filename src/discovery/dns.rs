//! Engines by names: each address that a name has is one.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use futures::future::join_all;

use super::answer::{Located, Unresolved};
use super::resolver::Resolver;
use super::{DnsName, Found};
use crate::config::EngineSpec;

/// Follows every name, for ever.
pub(super) async fn run(names: &[DnsName], resolver: &Resolver, tell: impl Fn(Found)) {
    let heard = Mutex::new(vec![Heard::default(); names.len()]);
    let follow = async |place: usize, name: &DnsName| {
        let question = name.question();
        let listen = |answer: Result<&[Located], &Unresolved>| {
            let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(heard) = heard.get_mut(place) {
                heard.hear(name, answer);
            }
            tell(merged(&heard));
        };
        resolver.follow(&question, listen).await;
    };
    let names = names.iter().enumerate();
    join_all(names.map(|(place, name)| follow(place, name))).await;
}

/// What is known of one name.
#[derive(Clone, Debug, Default)]
struct Heard {
    /// By its last good answer.
    engines: Vec<EngineSpec>,
    /// Whether it was ever answered, be it with nothing.
    is_known: bool,
}

impl Heard {
    /// Takes an answer in. Only one with places changes what is known before: that a name has no
    /// address any more is more often a mistake in the DNS than the end of all engines.
    fn hear(&mut self, name: &DnsName, answer: Result<&[Located], &Unresolved>) {
        match answer {
            Ok(places) => {
                self.engines = name.engines(places).collect();
                self.is_known = true;
            }
            Err(Unresolved::Nothing) => self.is_known = true,
            Err(Unresolved::Failed(_) | Unresolved::Slow(_)) => {}
        }
    }
}

/// The engines of all names, each once, in the order of the names.
fn merged(heard: &[Heard]) -> Found {
    let mut seen = HashSet::new();
    let all = heard.iter().flat_map(|name| &name.engines);
    Found {
        engines: all
            .filter(|engine| seen.insert(&engine.url))
            .cloned()
            .collect(),
        is_complete: heard.iter().all(|name| name.is_known),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(address: &str) -> Located {
        Located {
            address: address.parse().unwrap(),
            weight: 1,
        }
    }

    fn urls(found: &Found) -> Vec<String> {
        let engines = found.engines.iter();
        engines.map(|engine| engine.url.to_string()).collect()
    }

    #[test]
    fn engines_are_those_of_all_names_each_once() {
        let (a, b): (DnsName, DnsName) = ("a:1".parse().unwrap(), "b:1".parse().unwrap());
        let mut heard = vec![Heard::default(); 2];
        assert_eq!(merged(&heard), Found::default());
        heard[1].hear(&b, Ok(&[place("10.0.0.2:1"), place("10.0.0.3:1")]));
        let some = merged(&heard);
        assert_eq!(urls(&some), ["http://10.0.0.2:1", "http://10.0.0.3:1"]);
        assert!(!some.is_complete, "one name was not heard");
        heard[0].hear(&a, Ok(&[place("10.0.0.1:1"), place("10.0.0.2:1")]));
        let all = merged(&heard);
        assert_eq!(
            urls(&all),
            [
                "http://10.0.0.1:1",
                "http://10.0.0.2:1",
                "http://10.0.0.3:1"
            ]
        );
        assert!(all.is_complete);
    }

    #[test]
    fn every_failure_keeps_the_last_good_answer() {
        let name: DnsName = "a:1".parse().unwrap();
        let mut heard = Heard::default();
        heard.hear(&name, Ok(&[place("10.0.0.1:1")]));
        for why in [
            Unresolved::Nothing,
            Unresolved::Failed("SERVFAIL".to_owned()),
            Unresolved::Slow(std::time::Duration::from_secs(1)),
        ] {
            heard.hear(&name, Err(&why));
            assert_eq!(urls(&merged(&[heard.clone()])), ["http://10.0.0.1:1"]);
        }
        heard.hear(&name, Ok(&[place("10.0.0.2:1")]));
        assert_eq!(urls(&merged(&[heard])), ["http://10.0.0.2:1"]);
    }

    #[test]
    fn a_name_that_does_not_exist_is_known_to_have_no_engines() {
        let name: DnsName = "a:1".parse().unwrap();
        let mut heard = Heard::default();
        heard.hear(&name, Err(&Unresolved::Failed("refused".to_owned())));
        assert!(!merged(&[heard.clone()]).is_complete);
        heard.hear(&name, Err(&Unresolved::Nothing));
        assert_eq!(merged(&[heard]), Found::all(Vec::new()));
    }
}
