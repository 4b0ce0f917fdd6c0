//! What watched controllers of two crates have in common.

/// Those methods of a watched congestion controller that quinn-proto and noq-proto have alike.
macro_rules! cased_alike {
    () => {
        fn on_end_acks(
            &mut self,
            now: Instant,
            in_flight: u64,
            app_limited: bool,
            largest_packet_num_acked: Option<u64>,
        ) {
            self.probe.acknowledged(in_flight);
            self.inner
                .on_end_acks(now, in_flight, app_limited, largest_packet_num_acked);
        }

        fn on_mtu_update(&mut self, new_mtu: u16) {
            self.inner.on_mtu_update(new_mtu);
        }

        fn window(&self) -> u64 {
            self.inner.window()
        }

        fn metrics(&self) -> ControllerMetrics {
            self.inner.metrics()
        }

        fn clone_box(&self) -> Box<dyn Controller> {
            Box::new(Self {
                inner: self.inner.clone_box(),
                probe: self.probe.clone(),
            })
        }

        fn initial_window(&self) -> u64 {
            self.inner.initial_window()
        }

        fn into_any(self: Box<Self>) -> Box<dyn Any> {
            self.inner.into_any()
        }
    };
}
