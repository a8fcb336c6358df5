//! Makes series out of their names.

use std::collections::HashMap;
use std::fmt;

use prometheus::core::{Collector, Desc};
use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry, Result};

use super::names::Name;

pub(super) fn opts(name: &Name) -> Opts {
    Opts::new(name.name, name.help)
}

pub(super) fn histogram_opts(name: &Name) -> HistogramOpts {
    HistogramOpts::new(name.name, name.help).buckets(name.buckets.to_vec())
}

pub(super) fn counters(registry: &Registry, name: &Name) -> Result<IntCounterVec> {
    register(registry, IntCounterVec::new(opts(name), name.labels)?)
}

pub(super) fn gauges(registry: &Registry, name: &Name) -> Result<IntGaugeVec> {
    register(registry, IntGaugeVec::new(opts(name), name.labels)?)
}

pub(super) fn histograms(registry: &Registry, name: &Name) -> Result<HistogramVec> {
    let family = HistogramVec::new(histogram_opts(name), name.labels)?;
    register(registry, family)
}

pub(super) fn register<C: Collector + Clone + 'static>(
    registry: &Registry,
    collector: C,
) -> Result<C> {
    registry.register(Box::new(collector.clone()))?;
    Ok(collector)
}

/// One value of a [`Pulled`] series: the series, the values of its labels, and the number.
pub(super) type Value = (Name, Vec<String>, f64);

/// Series whose values are asked for when they are exposed.
pub(super) struct Pulled {
    names: Vec<Name>,
    descs: Vec<Desc>,
    read: Box<dyn Fn() -> Vec<Value> + Send + Sync>,
}

impl Pulled {
    /// Counters and gauges of these names, with the values that `read` gives.
    ///
    /// # Errors
    /// A name is malformed.
    pub(super) fn new(
        names: &[Name],
        read: impl Fn() -> Vec<Value> + Send + Sync + 'static,
    ) -> Result<Self> {
        let desc = |name: &Name| {
            let labels = name.labels.iter().map(|&label| label.to_owned());
            let (labels, none) = (labels.collect(), HashMap::new());
            Desc::new(name.name.to_owned(), name.help.to_owned(), labels, none)
        };
        Ok(Self {
            descs: names.iter().map(desc).collect::<Result<_>>()?,
            names: names.to_vec(),
            read: Box::new(read),
        })
    }
}

impl Collector for Pulled {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let values = (self.read)();
        let family = |name: &Name| {
            let values = values.iter().filter(|(of, ..)| of.name == name.name);
            let metrics = values.map(|(_, labels, value)| metric(name, labels, *value));
            let mut family = MetricFamily::default();
            family.set_name(name.name.to_owned());
            family.set_help(name.help.to_owned());
            family.set_field_type(if name.kind == "counter" {
                MetricType::COUNTER
            } else {
                MetricType::GAUGE
            });
            family.set_metric(metrics.collect());
            family
        };
        self.names.iter().map(family).collect()
    }
}

fn metric(name: &Name, labels: &[String], value: f64) -> Metric {
    let pairs = name.labels.iter().zip(labels).map(|(&label, value)| {
        let mut pair = LabelPair::default();
        pair.set_name(label.to_owned());
        pair.set_value(value.clone());
        pair
    });
    let mut metric = Metric::from_label(pairs.collect());
    if name.kind == "counter" {
        let mut counter = Counter::default();
        counter.set_value(value);
        metric.set_counter(counter);
    } else {
        let mut gauge = Gauge::default();
        gauge.set_value(value);
        metric.set_gauge(gauge);
    }
    metric
}

impl fmt::Debug for Pulled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pulled").field(&self.names).finish()
    }
}
