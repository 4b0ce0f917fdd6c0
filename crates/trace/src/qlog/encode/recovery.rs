//! Encoding of loss recovery and congestion control.

use clearway_recovery::controller::WindowPolicy;

use crate::event::{Metrics, RecoveryParameters, TimerChange, TimerKind};
use crate::qlog::json::Json;

pub(super) fn timer(json: &mut Json<'_>, kind: Option<TimerKind>, change: TimerChange) {
    let kind = kind.map(|kind| match kind {
        TimerKind::Loss => "ack",
        TimerKind::Pto => "pto",
    });
    json.opt_text("timer_type", kind);
    match change {
        TimerChange::Set(delta) => {
            json.text("event_type", "set");
            json.opt_ms("delta", delta);
        }
        TimerChange::Expired => json.text("event_type", "expired"),
        TimerChange::Cancelled => json.text("event_type", "cancelled"),
    }
}

pub(super) fn parameters(json: &mut Json<'_>, it: &RecoveryParameters) {
    json.opt_u64("reordering_threshold", it.reordering_threshold);
    if let Some(threshold) = it.time_threshold {
        json.thousandths("time_threshold", threshold);
    }
    json.u64("timer_granularity", 1);
    json.opt_ms("initial_rtt", it.initial_rtt);
    json.opt_u64("max_datagram_size", it.max_datagram_size);
    json.opt_u64("initial_congestion_window", it.initial_congestion_window);
    json.opt_u64("minimum_congestion_window", it.minimum_congestion_window);
    json.opt_u64(
        "persistent_congestion_threshold",
        it.persistent_congestion_threshold,
    );
    json.opt_text("controller", it.controller.as_deref());
    json.opt_text("window_policy", it.window_policy.map(WindowPolicy::name));
}

pub(super) fn metrics(json: &mut Json<'_>, it: &Metrics) {
    json.opt_ms("min_rtt", it.min_rtt);
    json.opt_ms("smoothed_rtt", it.smoothed_rtt);
    json.opt_ms("latest_rtt", it.latest_rtt);
    json.opt_ms("rtt_variance", it.rtt_variance);
    for (key, value) in [
        ("pto_count", it.pto_count),
        ("congestion_window", it.congestion_window),
        ("bytes_in_flight", it.bytes_in_flight),
        ("ssthresh", it.ssthresh),
        ("packets_in_flight", it.packets_in_flight),
        ("pacing_rate", it.pacing_rate),
        ("delivery_rate", it.delivery_rate),
    ] {
        json.opt_u64(key, value);
    }
    if let Some(limited) = it.app_limited {
        json.bool("app_limited", limited);
    }
    for (key, value) in [
        ("delivered", it.delivered),
        ("lost", it.lost),
        ("congestion_events", it.congestion_events),
        ("spurious_events", it.spurious_events),
        ("persistent_events", it.persistent_events),
    ] {
        json.opt_u64(key, value);
    }
    if !it.extra.is_empty() {
        json.object("controller", |json| {
            for (key, value) in &it.extra {
                json.u64(key, *value);
            }
        });
    }
}
