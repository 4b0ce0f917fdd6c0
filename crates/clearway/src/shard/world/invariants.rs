//! What has to hold in every state, and at the end.

use std::time::Duration;

use clearway_quic::Instant;

use super::app::App;
use super::{Driver, Shard};
use crate::connection::Stage;

impl Shard {
    /// Checks that something will wake the loop for every piece of work.
    pub(super) fn check_wakes(&self, driver: &Driver) -> Result<(), String> {
        let shard = &driver.shard;
        let alarm = driver.alarm.armed();
        let alarmed = |at: Instant| at > self.now && alarm.is_some_and(|alarm| alarm <= at);
        let blocked = shard.transmitter.is_blocked();
        if blocked && !shard.transmitter.resend_at().is_some_and(alarmed) {
            return Err("a train waits for the socket, and no alarm will offer it again".into());
        }
        if !shard.lingering_ends_at().is_none_or(alarmed) {
            return Err("connections linger, and no alarm will close them".into());
        }
        let arrived = self.socket.queues().arrived.len();
        if arrived > 0 && !driver.receiver.retry_at().is_some_and(alarmed) {
            return Err(format!(
                "{arrived} datagrams wait, and nothing will fetch them"
            ));
        }
        if !shard.pending_clients.is_empty() || !self.link.inbox().dirty.is_empty() {
            return Err("the inbox was left as it was".into());
        }
        if !shard.overdue.is_empty() && !shard.timeouts_resume_at().is_some_and(alarmed) {
            return Err("timeouts wait, and no alarm will handle them".into());
        }
        for (handle, entry) in &shard.table {
            let ready = entry.account.is_queued();
            let queued = shard.scheduler.times_queued(*handle);
            if queued != usize::from(ready) {
                return Err(format!("{handle:?} is queued {queued} times"));
            }
            // No fault is injected at this stage.
            let looked = entry.shared.with_state(Stage::Http, |state| {
                // A connection that has ended has nothing more to send.
                let due = state.error.is_none() && state.quic.is_transmit_due();
                (due, state.next_wakeup())
            });
            // A terminated connection is removed in its turn.
            let Ok((due, timeout)) = looked else {
                if !(ready && blocked) {
                    return Err(format!(
                        "{handle:?} was terminated and is still in the table"
                    ));
                }
                continue;
            };
            if (due || ready) && !(ready && blocked) {
                return Err(format!("{handle:?} has something to send and no turn"));
            }
            if !entry.is_overdue && timeout.is_some_and(|at| !alarmed(at)) {
                return Err(format!(
                    "{handle:?} waits for {timeout:?}, the alarm for {alarm:?}"
                ));
            }
            if timeout.is_none() && !ready {
                return Err(format!("{handle:?} waits for nothing"));
            }
        }
        Ok(())
    }

    /// Checks that all counts agree.
    pub(super) fn check_counts(&self) -> Result<(), String> {
        let table = self.driver.as_ref().map(|driver| &driver.shard.table);
        let there = table.map_or(0, std::collections::HashMap::len);
        let admission = self.endpoint_shared.eviction.admission.as_ref();
        let accepted = admission.map_or(0, |admission| admission.connections());
        let known = self.link.endpoint().len();
        let connection_count = self.endpoint_shared.connection_count.get();
        let routes_gone = self.driver.is_some() && known != there;
        if connection_count != there || accepted != there || routes_gone {
            return Err(format!(
                "{there} connections, {connection_count} counted, {accepted} as accepted, \
                 {known} with routes"
            ));
        }
        let counted = table.map(|table| table.values().map(|each| each.shared.charged()).sum());
        let used = self.link.budget.used();
        let held = self.apps.iter().any(|app| app.connection.is_some());
        let ended = self.driver.is_none() && held;
        if !ended && self.apps_hold_nothing_else() && used != counted.unwrap_or(0) {
            return Err(format!("{used} bytes counted, of connections {counted:?}"));
        }
        Ok(())
    }

    /// Whether no handle keeps a connection that the shard has removed.
    fn apps_hold_nothing_else(&self) -> bool {
        let held = self.apps.iter().filter(|app| app.connection.is_some());
        let there = self.driver.as_ref().map_or(0, |d| d.shard.table.len());
        held.count() <= there
    }

    /// Runs to the end without further faults, with all handles dropped, and checks that nothing
    /// is left.
    pub(super) fn run_to_end(mut self) -> Result<(), String> {
        {
            let mut queues = self.socket.queues();
            queues.full = false;
            queues.fault = None;
        }
        self.signal_writable();
        self.apps.iter_mut().for_each(App::drop_all);
        self.link.abandon();
        self.settle();
        for _ in 0..400 {
            if self.driver.is_none() {
                break;
            }
            for n in 0..self.peers.len() {
                self.receive_all(n);
            }
            match self.alarm() {
                Some(at) => self.now = self.now.max(at),
                None => self.now += Duration::from_millis(10),
            }
            self.settle();
        }
        if self.driver.is_some() {
            return Err("the loop does not end".into());
        }
        if self.ended == Some(true) && !self.link.endpoint().is_empty() {
            return Err("routes are left".into());
        }
        let left = (
            self.endpoint_shared.connection_count.get(),
            self.link.budget.used(),
        );
        if left != (0, 0) {
            return Err(format!("connections, bytes still counted: {left:?}"));
        }
        self.broken.map_or(Ok(()), Err)
    }
}
