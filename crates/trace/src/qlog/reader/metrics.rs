//! Decoding of metrics, the most frequent event beside packets.

use std::collections::BTreeMap;

use super::fields::{integer, is_negative, time};
use super::value::Value;
use crate::event::{Metrics, Name};

/// The fields of a metrics event, each found in one pass.
#[derive(Default)]
struct MetricFields<'v> {
    min_rtt: Option<Value<'v>>,
    smoothed_rtt: Option<Value<'v>>,
    latest_rtt: Option<Value<'v>>,
    rtt_variance: Option<Value<'v>>,
    pto_count: Option<Value<'v>>,
    congestion_window: Option<Value<'v>>,
    cwnd: Option<Value<'v>>,
    bytes_in_flight: Option<Value<'v>>,
    ssthresh: Option<Value<'v>>,
    packets_in_flight: Option<Value<'v>>,
    pacing_rate: Option<Value<'v>>,
    delivery_rate: Option<Value<'v>>,
    app_limited: Option<Value<'v>>,
    delivered: Option<Value<'v>>,
    lost: Option<Value<'v>>,
    congestion_events: Option<Value<'v>>,
    spurious_events: Option<Value<'v>>,
    persistent_events: Option<Value<'v>>,
    controller: Option<Value<'v>>,
    /// Those that have no field of their own.
    others: Vec<(&'v str, Value<'v>)>,
}

impl<'v> MetricFields<'v> {
    fn of(it: Value<'v>) -> Self {
        let mut this = Self::default();
        for (name, value) in it.fields().into_iter().flatten() {
            let field = match name {
                "min_rtt" => &mut this.min_rtt,
                "smoothed_rtt" => &mut this.smoothed_rtt,
                "latest_rtt" => &mut this.latest_rtt,
                "rtt_variance" => &mut this.rtt_variance,
                "pto_count" => &mut this.pto_count,
                "congestion_window" => &mut this.congestion_window,
                "cwnd" => &mut this.cwnd,
                "bytes_in_flight" => &mut this.bytes_in_flight,
                "ssthresh" => &mut this.ssthresh,
                "packets_in_flight" => &mut this.packets_in_flight,
                "pacing_rate" => &mut this.pacing_rate,
                "delivery_rate" => &mut this.delivery_rate,
                "app_limited" => &mut this.app_limited,
                "delivered" => &mut this.delivered,
                "lost" => &mut this.lost,
                "congestion_events" => &mut this.congestion_events,
                "spurious_events" => &mut this.spurious_events,
                "persistent_events" => &mut this.persistent_events,
                "controller" => &mut this.controller,
                "in_recovery" | "max_bandwidth" | "path_id" => continue,
                _ => {
                    this.others.push((name, value));
                    continue;
                }
            };
            *field = Some(value);
        }
        this
    }

    /// Whether a value that detectors rely on is negative. (`-1` stands for "none" elsewhere.)
    fn negative(&self) -> bool {
        let counted_on = [
            self.min_rtt,
            self.smoothed_rtt,
            self.latest_rtt,
            self.congestion_window,
            self.cwnd,
            self.bytes_in_flight,
        ];
        counted_on.into_iter().flatten().any(is_negative)
    }

    /// The controller's own metrics: ours in an object, others' beside the rest.
    fn extra(&self) -> Vec<(Name, u64)> {
        let own = self.controller.and_then(Value::fields);
        let beside = || self.others.iter().copied();
        let fields: BTreeMap<&str, Value<'_>> = match own {
            None if self.others.is_empty() => return Vec::new(),
            None => beside().collect(),
            Some(own) => own.collect(),
        };
        let integers = fields
            .into_iter()
            .filter_map(|(name, value)| Some((Name::Owned(name.to_owned()), integer(value)?)));
        integers.take(64).collect()
    }
}

/// `None` if a value is negative that cannot be.
pub(super) fn metrics(it: Value<'_>) -> Option<Metrics> {
    let fields = MetricFields::of(it);
    if fields.negative() {
        return None;
    }
    let ms = |value: Option<Value<'_>>| time(value?, 1_000_000);
    let get = |value: Option<Value<'_>>| integer(value?);
    Some(Metrics {
        min_rtt: ms(fields.min_rtt),
        smoothed_rtt: ms(fields.smoothed_rtt),
        latest_rtt: ms(fields.latest_rtt),
        rtt_variance: ms(fields.rtt_variance),
        pto_count: get(fields.pto_count),
        congestion_window: get(fields.congestion_window).or_else(|| get(fields.cwnd)),
        bytes_in_flight: get(fields.bytes_in_flight),
        // quiche and others write the largest number for "not set".
        ssthresh: get(fields.ssthresh).filter(|ssthresh| *ssthresh < u64::from(u32::MAX) << 20),
        packets_in_flight: get(fields.packets_in_flight),
        pacing_rate: get(fields.pacing_rate),
        delivery_rate: get(fields.delivery_rate),
        app_limited: fields.app_limited.and_then(Value::as_bool),
        delivered: get(fields.delivered),
        lost: get(fields.lost),
        congestion_events: get(fields.congestion_events),
        spurious_events: get(fields.spurious_events),
        persistent_events: get(fields.persistent_events),
        extra: fields.extra(),
    })
}
