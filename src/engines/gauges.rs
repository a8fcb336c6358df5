//! What an engine says of its load, in its `/metrics`.

/// The gauges of a vLLM server that routing goes by.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gauges {
    /// Requests in the running batch, over all of its ranks.
    pub running: f64,
    /// Requests in its queue, likewise.
    pub waiting: f64,
    /// Used part of the KV cache, from 0 to 1, in the mean of its ranks.
    pub kv_cache: f64,
    /// When its process started, in seconds of Unix time, where it says so.
    pub started: Option<f64>,
}

const RUNNING: &str = "vllm:num_requests_running";
const WAITING: &str = "vllm:num_requests_waiting";
/// The name of today, and the one until vLLM 0.10.
const KV_CACHE: [&str; 2] = ["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"];
const STARTED: &str = "process_start_time_seconds";

impl Gauges {
    /// Reads an exposition in Prometheus' text format; `None` where it is not one of vLLM.
    ///
    /// An exposition has hundreds of lines, of which a handful matter: those are picked out, and
    /// nothing else is looked at.
    pub fn read(exposition: &str) -> Option<Self> {
        let values = |wanted: &str| -> Vec<f64> {
            let samples = exposition.lines().filter_map(sample);
            samples
                .filter(|(name, _)| *name == wanted)
                .map(|(_, value)| value)
                .collect()
        };
        let (running, waiting) = (values(RUNNING), values(WAITING));
        if running.is_empty() && waiting.is_empty() {
            return None;
        }
        let mut caches = KV_CACHE.map(values).into_iter();
        let cache = caches.find(|values| !values.is_empty());
        #[allow(clippy::cast_precision_loss)] // a handful of ranks
        let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len() as f64;
        Some(Self {
            running: running.iter().sum(),
            waiting: waiting.iter().sum(),
            kv_cache: cache.map_or(0.0, mean).min(1.0),
            started: values(STARTED).first().copied(),
        })
    }
}

/// The name and the value of a sample's line; `None` for other lines, and for values that no count
/// or share can have.
fn sample(line: &str) -> Option<(&str, f64)> {
    let (name, rest) = match line.find(['{', ' ']) {
        Some(end) => line.split_at(end),
        None => return None,
    };
    // A label may hold a brace, a value may not.
    let value = rest
        .rfind('}')
        .map_or(Some(rest), |end| rest.get(end + 1..))?;
    if value == rest && rest.starts_with('{') {
        return None;
    }
    let value: f64 = value.split_ascii_whitespace().next()?.parse().ok()?;
    (value.is_finite() && value >= 0.0).then_some((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gauges_of_all_ranks_are_one_engines() {
        let text = "\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine=\"0\",model_name=\"a}b\"} 3.0
vllm:num_requests_running{engine=\"1\",model_name=\"m\"} 4.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine=\"0\",model_name=\"m\"} 0.0
vllm:num_requests_waiting{engine=\"1\",model_name=\"m\"} 2.0
vllm:num_requests_waiting_by_reason{engine=\"1\",reason=\"capacity\"} 2.0
vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\"} 0.5
vllm:kv_cache_usage_perc{engine=\"1\",model_name=\"m\"} 0.25
process_start_time_seconds 1.7e+09
";
        let expected = Gauges {
            running: 7.0,
            waiting: 2.0,
            kv_cache: 0.375,
            started: Some(1.7e9),
        };
        assert_eq!(Gauges::read(text), Some(expected));
    }

    #[test]
    fn the_older_name_of_the_cache_is_known_too() {
        let text = "vllm:num_requests_running{model_name=\"m\"} 1\nvllm:gpu_cache_usage_perc{model_name=\"m\"} 0.75\n";
        assert_eq!(
            Gauges::read(text).unwrap().kv_cache.to_bits(),
            0.75f64.to_bits()
        );
    }

    #[test]
    fn what_is_no_exposition_of_vllm_says_nothing() {
        for text in [
            "",
            "<html>not found</html>",
            "process_start_time_seconds 3",
            "vllm:num_requests_running",
            "vllm:num_requests_running{ 1",
            "vllm:num_requests_running NaN",
            "vllm:num_requests_running -4",
        ] {
            assert_eq!(Gauges::read(text), None, "{text}");
        }
    }
}
