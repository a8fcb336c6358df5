//! Which engines the `EndpointSlice`s of a Service amount to.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::ResourceExt as _;
use kube::runtime::watcher::Event;

use crate::config::{EngineSpec, EngineUrl};

/// The port of a pod that its engine listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Port {
    /// This one, whether or not the Service lists it.
    Number(u16),
    /// The one that the Service lists under this name; it may differ from pod to pod.
    Name(String),
}

impl Port {
    /// Where vLLM listens unless told otherwise.
    pub const DEFAULT: Self = Self::Number(8000);
}

impl FromStr for Port {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let edges = !text.starts_with('-') && !text.ends_with('-');
        match text.parse() {
            Ok(number @ 1..) => Ok(Self::Number(number)),
            Err(_)
                if (1..=63).contains(&text.len())
                    && text.bytes().all(plain)
                    && edges
                    && !text.bytes().all(|byte| byte.is_ascii_digit()) =>
            {
                Ok(Self::Name(text.to_owned()))
            }
            _ => Err(
                "must be a number from 1 to 65535, or a name of lower-case letters, digits and dashes"
                    .to_owned(),
            ),
        }
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// The slices as they are told by a list and a watch.
#[derive(Debug, Default)]
pub(super) struct Slices {
    known: BTreeMap<String, EndpointSlice>,
    /// A list that has begun and not ended; until then what was known stands.
    listing: BTreeMap<String, EndpointSlice>,
}

/// What slices amount to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Selection {
    /// An engine for each pod that is ready, by its name.
    pub(super) engines: Vec<EngineSpec>,
    /// Slices that do not have the port that was asked for.
    pub(super) without_port: Vec<String>,
}

impl Slices {
    /// Takes an event in; whether what is known may have changed.
    pub(super) fn apply(&mut self, event: Event<EndpointSlice>) -> bool {
        match event {
            Event::Init => {
                self.listing.clear();
                return false;
            }
            Event::InitApply(slice) => {
                self.listing.insert(slice.name_any(), slice);
                return false;
            }
            Event::InitDone => self.known = std::mem::take(&mut self.listing),
            Event::Apply(slice) => {
                self.known.insert(slice.name_any(), slice);
            }
            Event::Delete(slice) => {
                self.known.remove(&slice.name_any());
            }
        }
        true
    }

    /// The engines: one for each pod that is ready and not about to end.
    ///
    /// A pod may be in several slices: of two Services, of two address families, or for a moment
    /// while the slices are balanced. It counts once, by IPv4 where it has that.
    pub(super) fn select(&self, port: &Port) -> Selection {
        let mut selection = Selection::default();
        let (mut pods, mut urls) = (HashSet::new(), HashSet::new());
        let family = |wanted: &'static str| {
            let slices = self.known.values();
            slices.filter(move |slice| slice.address_type == wanted)
        };
        for slice in family("IPv4").chain(family("IPv6")) {
            let Some(port) = port_of(slice, port) else {
                selection.without_port.push(slice.name_any());
                continue;
            };
            for endpoint in slice.endpoints.iter().filter(|endpoint| is_ready(endpoint)) {
                // More than one address has no meaning; see the documentation of the type.
                let address = endpoint.addresses.first().map(|text| text.parse());
                let Some(Ok(ip)) = address else { continue };
                let url = EngineUrl::of(SocketAddr::new(ip, port));
                let pod = pod_of(endpoint);
                let is_new = pod.as_ref().is_none_or(|pod| pods.insert(pod.clone()));
                if is_new && urls.insert(url.clone()) {
                    selection.engines.push(EngineSpec {
                        id: pod,
                        ..EngineSpec::new(url, Vec::new())
                    });
                }
            }
        }
        let order = |engine: &EngineSpec| (engine.id.clone(), engine.url.clone());
        selection.engines.sort_by_cached_key(order);
        selection
    }
}

/// The number of the port in this slice.
fn port_of(slice: &EndpointSlice, port: &Port) -> Option<u16> {
    let name = match port {
        Port::Number(number) => return Some(*number),
        Port::Name(name) => name,
    };
    let mut ports = slice.ports.iter().flatten();
    let found = ports.find(|port| port.name.as_ref() == Some(name))?;
    u16::try_from(found.port?).ok().filter(|port| *port != 0)
}

/// Conditions that are left out are taken to be good, as Kubernetes has it.
fn is_ready(endpoint: &Endpoint) -> bool {
    let Some(conditions) = &endpoint.conditions else {
        return true;
    };
    conditions.ready.unwrap_or(true) && !conditions.terminating.unwrap_or(false)
}

fn pod_of(endpoint: &Endpoint) -> Option<String> {
    let target = endpoint.target_ref.as_ref()?;
    let is_pod = target.kind.as_deref() == Some("Pod");
    target
        .name
        .clone()
        .filter(|name| is_pod && !name.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn slice(json: Value) -> EndpointSlice {
        serde_json::from_value(json).unwrap()
    }

    /// A slice of this name and family with port 8000 called http.
    fn of(name: &str, family: &str, endpoints: Value) -> EndpointSlice {
        slice(json!({
            "metadata": {"name": name},
            "addressType": family,
            "endpoints": endpoints,
            "ports": [{"name": "metrics", "port": 9000}, {"name": "http", "port": 8000}],
        }))
    }

    fn pod(name: &str, address: &str) -> Value {
        json!({
            "addresses": [address],
            "conditions": {"ready": true, "serving": true, "terminating": false},
            "targetRef": {"kind": "Pod", "name": name},
        })
    }

    fn select(slices: impl IntoIterator<Item = EndpointSlice>, port: &str) -> Selection {
        let mut known = Slices::default();
        for slice in slices {
            known.apply(Event::Apply(slice));
        }
        known.select(&port.parse().unwrap())
    }

    fn shown(selection: &Selection) -> Vec<String> {
        let engines = selection.engines.iter();
        engines
            .map(|engine| format!("{} {}", engine.id.as_deref().unwrap_or("-"), engine.url))
            .collect()
    }

    #[test]
    fn each_ready_pod_is_an_engine_named_after_it() {
        let slices = [
            of("b", "IPv4", json!([pod("vllm-1", "10.0.0.2")])),
            of(
                "a",
                "IPv4",
                json!([pod("vllm-2", "10.0.0.3"), pod("vllm-0", "10.0.0.1")]),
            ),
        ];
        let found = select(slices, "8001");
        assert_eq!(
            shown(&found),
            [
                "vllm-0 http://10.0.0.1:8001",
                "vllm-1 http://10.0.0.2:8001",
                "vllm-2 http://10.0.0.3:8001",
            ]
        );
        assert!(
            found
                .engines
                .iter()
                .all(|engine| engine.models.is_empty() && engine.weight == 1)
        );
    }

    #[test]
    fn only_pods_that_are_ready_and_stay_count() {
        let with = |conditions: Value| {
            let mut pod = pod("vllm-0", "10.0.0.1");
            pod["conditions"] = conditions;
            select([of("a", "IPv4", json!([pod]))], "8000")
                .engines
                .len()
        };
        for (conditions, count) in [
            (json!({"ready": true}), 1),
            (json!({"ready": false}), 0),
            (json!({"ready": null, "terminating": null}), 1),
            (json!({}), 1),
            (json!(null), 1),
            // As of a Service that publishes addresses before they are ready.
            (json!({"ready": true, "terminating": true}), 0),
            (
                json!({"ready": false, "serving": true, "terminating": true}),
                0,
            ),
        ] {
            assert_eq!(with(conditions.clone()), count, "{conditions}");
        }
    }

    #[test]
    fn a_port_is_found_by_its_name_in_each_slice() {
        let mut other = of("b", "IPv4", json!([pod("vllm-1", "10.0.0.2")]));
        other.ports.as_mut().unwrap()[1].port = Some(8001);
        let mut none = of("c", "IPv4", json!([pod("vllm-2", "10.0.0.3")]));
        none.ports = None;
        let slices = [
            of("a", "IPv4", json!([pod("vllm-0", "10.0.0.1")])),
            other,
            none,
        ];
        let found = select(slices, "http");
        assert_eq!(
            shown(&found),
            ["vllm-0 http://10.0.0.1:8000", "vllm-1 http://10.0.0.2:8001"]
        );
        assert_eq!(found.without_port, ["c"]);
    }

    #[test]
    fn a_pod_counts_once_and_by_ipv4_where_it_has_both() {
        let slices = [
            of(
                "a6",
                "IPv6",
                json!([pod("vllm-0", "fd00::1"), pod("vllm-1", "fd00::2")]),
            ),
            of("b4", "IPv4", json!([pod("vllm-0", "10.0.0.1")])),
            of("c4", "IPv4", json!([pod("vllm-0", "10.0.0.1")])),
        ];
        assert_eq!(
            shown(&select(slices, "8000")),
            [
                "vllm-0 http://10.0.0.1:8000",
                "vllm-1 http://[fd00::2]:8000"
            ]
        );
    }

    #[test]
    fn an_address_without_a_pod_is_an_engine_without_a_name() {
        let bare = json!({"addresses": ["10.0.0.1", "10.0.0.9"]});
        let node = json!({"addresses": ["10.0.0.2"], "targetRef": {"kind": "Node", "name": "n"}});
        let odd = json!({"addresses": ["pod.example"]});
        let none = json!({"addresses": []});
        let slices = [
            of("a", "IPv4", json!([bare, node, odd, none])),
            of("b", "IPv4", json!([bare])),
            of("c", "FQDN", json!([{"addresses": ["a.example"]}])),
        ];
        assert_eq!(
            shown(&select(slices, "8000")),
            ["- http://10.0.0.1:8000", "- http://10.0.0.2:8000"]
        );
    }

    #[test]
    fn a_new_list_takes_the_place_of_the_old_one_as_a_whole_once_it_is_there() {
        let mut slices = Slices::default();
        let with =
            |name: &str, pod_name: &str, ip: &str| of(name, "IPv4", json!([pod(pod_name, ip)]));
        assert!(slices.apply(Event::Apply(with("a", "vllm-0", "10.0.0.1"))));
        assert!(slices.apply(Event::Apply(with("b", "vllm-1", "10.0.0.2"))));
        let port = Port::Number(8000);
        let before = slices.select(&port);
        assert_eq!(before.engines.len(), 2);
        assert!(!slices.apply(Event::Init));
        assert!(!slices.apply(Event::InitApply(with("b", "vllm-9", "10.0.0.9"))));
        assert_eq!(slices.select(&port), before);
        // The list breaks off and begins again.
        assert!(!slices.apply(Event::Init));
        assert!(!slices.apply(Event::InitApply(with("c", "vllm-3", "10.0.0.4"))));
        assert!(slices.apply(Event::InitDone));
        assert_eq!(
            shown(&slices.select(&port)),
            ["vllm-3 http://10.0.0.4:8000"]
        );
        assert!(slices.apply(Event::Delete(with("c", "vllm-3", "10.0.0.4"))));
        assert_eq!(slices.select(&port), Selection::default());
    }

    #[test]
    fn a_port_is_a_number_or_a_name() {
        assert_eq!("8000".parse(), Ok(Port::Number(8000)));
        assert_eq!("http-1".parse(), Ok(Port::Name("http-1".to_owned())));
        for text in ["", "0", "65536", "-1", "Http", "a_b", "-a", "a-", "123456"] {
            assert!(text.parse::<Port>().is_err(), "{text:?}");
        }
    }
}
