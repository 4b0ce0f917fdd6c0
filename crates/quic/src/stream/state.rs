//! The two halves of a stream as state machines (RFC 9000 §3.1, §3.2).

/// An invalid state transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IllegalTransition;

/// The sending half (RFC 9000 §3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SendState {
    /// Opened; nothing sent.
    #[default]
    Ready,
    /// STREAM frames were sent.
    Sending,
    /// The FIN was sent; lost data is still retransmitted.
    DataSent,
    /// Everything including the FIN was acknowledged ("Data Recvd"). Terminal.
    DataAcked,
    /// Abandoned; RESET_STREAM is being delivered.
    ResetSent,
    /// RESET_STREAM was acknowledged ("Reset Recvd"). Terminal.
    ResetAcked,
}

/// A transition of a [`SendState`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SendTransition {
    /// A STREAM frame was sent.
    Data,
    /// A STREAM frame with FIN was sent.
    Fin,
    /// The application reset the stream, or the peer sent STOP_SENDING.
    Reset,
    /// All data and the FIN are acknowledged.
    DataAcked,
    /// RESET_STREAM is acknowledged.
    ResetAcked,
    /// The server rejected 0-RTT: the data sent so far does not count.
    Rejected,
}

impl SendState {
    /// Every state, in the order of RFC 9000 figure 2.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 6] = [
        Self::Ready,
        Self::Sending,
        Self::DataSent,
        Self::DataAcked,
        Self::ResetSent,
        Self::ResetAcked,
    ];

    /// Returns the state after `step`.
    ///
    /// # Errors
    /// [`IllegalTransition`] when RFC 9000 figure 2 has no such arrow.
    pub const fn after(self, step: SendTransition) -> Result<Self, IllegalTransition> {
        use SendTransition as M;
        match (self, step) {
            (Self::Ready | Self::Sending, M::Data) => Ok(Self::Sending),
            (Self::DataSent, M::Data) => Ok(Self::DataSent),
            (Self::Ready | Self::Sending | Self::DataSent, M::Fin) => Ok(Self::DataSent),
            (Self::Ready | Self::Sending | Self::DataSent, M::Reset) => Ok(Self::ResetSent),
            (Self::DataSent, M::DataAcked) => Ok(Self::DataAcked),
            (Self::ResetSent, M::ResetAcked) => Ok(Self::ResetAcked),
            (Self::Ready | Self::Sending | Self::DataSent, M::Rejected) => Ok(Self::Ready),
            (Self::ResetSent, M::Rejected) => Ok(Self::ResetSent),
            (
                Self::DataAcked | Self::ResetAcked,
                M::Data | M::Fin | M::Reset | M::DataAcked | M::ResetAcked | M::Rejected,
            )
            | (Self::ResetSent, M::Data | M::Fin | M::Reset | M::DataAcked)
            | (Self::Ready | Self::Sending, M::DataAcked | M::ResetAcked)
            | (Self::DataSent, M::ResetAcked) => Err(IllegalTransition),
        }
    }

    /// Returns whether nothing more will be sent.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::DataAcked | Self::ResetAcked)
    }
}

/// The receiving half (RFC 9000 §3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RecvState {
    /// Data arrives; the end is not known.
    #[default]
    Recv,
    /// The FIN arrived; data is missing.
    SizeKnown,
    /// Everything arrived; the application has not read the end.
    DataRecvd,
    /// The application has read the end, or has stopped the stream. Terminal.
    DataRead,
    /// The peer reset the stream; the application does not know it yet.
    ResetRecvd,
    /// The application knows of the reset (RFC: "Reset Read"). Terminal.
    ResetRead,
}

/// A transition of a [`RecvState`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecvTransition {
    /// A FIN arrived.
    Fin,
    /// The last missing byte arrived.
    Complete,
    /// RESET_STREAM arrived.
    Reset,
    /// The application learned of the end or of the reset, or stopped the stream.
    Told,
}

impl RecvState {
    /// Every state, in the order of RFC 9000 figure 3.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 6] = [
        Self::Recv,
        Self::SizeKnown,
        Self::DataRecvd,
        Self::DataRead,
        Self::ResetRecvd,
        Self::ResetRead,
    ];

    /// Returns the state after `step`. A reset that comes after all data is ignored, as
    /// RFC 9000 §3.2 permits.
    ///
    /// # Errors
    /// [`IllegalTransition`] when RFC 9000 figure 3 has no such arrow.
    pub const fn after(self, step: RecvTransition) -> Result<Self, IllegalTransition> {
        use RecvTransition as M;
        match (self, step) {
            (Self::Recv | Self::SizeKnown, M::Fin) => Ok(Self::SizeKnown),
            (Self::SizeKnown, M::Complete) => Ok(Self::DataRecvd),
            (Self::Recv | Self::SizeKnown, M::Reset) => Ok(Self::ResetRecvd),
            (Self::DataRecvd, M::Reset | M::Fin) => Ok(Self::DataRecvd),
            (Self::DataRecvd, M::Told) => Ok(Self::DataRead),
            (Self::ResetRecvd, M::Told) => Ok(Self::ResetRead),
            (Self::Recv, M::Complete | M::Told)
            | (Self::SizeKnown, M::Told)
            | (Self::DataRecvd, M::Complete)
            | (Self::ResetRecvd, M::Fin | M::Complete | M::Reset)
            | (Self::DataRead | Self::ResetRead, M::Fin | M::Complete | M::Reset | M::Told) => {
                Err(IllegalTransition)
            }
        }
    }

    /// Returns whether frames of the peer can still change the state.
    #[must_use]
    pub const fn is_receiving(self) -> bool {
        matches!(self, Self::Recv | Self::SizeKnown)
    }

    /// Returns whether nothing more will be delivered.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::DataRead | Self::ResetRead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn send_state_transition_table() {
        use SendState as S;
        use SendTransition as M;
        let table = [
            //  state          Data              Fin               Reset              DataAcked           ResetAcked           Rejected
            (
                S::Ready,
                [
                    Some(S::Sending),
                    Some(S::DataSent),
                    Some(S::ResetSent),
                    None,
                    None,
                    Some(S::Ready),
                ],
            ),
            (
                S::Sending,
                [
                    Some(S::Sending),
                    Some(S::DataSent),
                    Some(S::ResetSent),
                    None,
                    None,
                    Some(S::Ready),
                ],
            ),
            (
                S::DataSent,
                [
                    Some(S::DataSent),
                    Some(S::DataSent),
                    Some(S::ResetSent),
                    Some(S::DataAcked),
                    None,
                    Some(S::Ready),
                ],
            ),
            (S::DataAcked, [None, None, None, None, None, None]),
            (
                S::ResetSent,
                [
                    None,
                    None,
                    None,
                    None,
                    Some(S::ResetAcked),
                    Some(S::ResetSent),
                ],
            ),
            (S::ResetAcked, [None, None, None, None, None, None]),
        ];
        let transitions = [
            M::Data,
            M::Fin,
            M::Reset,
            M::DataAcked,
            M::ResetAcked,
            M::Rejected,
        ];
        assert_eq!(table.map(|(state, _)| state), S::ALL);
        for (state, row) in table {
            assert_eq!(transitions.map(|t| state.after(t).ok()), row, "{state:?}");
            let terminal = row.iter().all(Option::is_none);
            assert_eq!(state.is_terminal(), terminal, "{state:?}");
        }
    }

    #[test]
    fn receive_state_transition_table() {
        use RecvState as S;
        use RecvTransition as M;
        let table = [
            //  state          Fin                 Complete            Reset                Told
            (
                S::Recv,
                [Some(S::SizeKnown), None, Some(S::ResetRecvd), None],
            ),
            (
                S::SizeKnown,
                [
                    Some(S::SizeKnown),
                    Some(S::DataRecvd),
                    Some(S::ResetRecvd),
                    None,
                ],
            ),
            (
                S::DataRecvd,
                [
                    Some(S::DataRecvd),
                    None,
                    Some(S::DataRecvd),
                    Some(S::DataRead),
                ],
            ),
            (S::DataRead, [None, None, None, None]),
            (S::ResetRecvd, [None, None, None, Some(S::ResetRead)]),
            (S::ResetRead, [None, None, None, None]),
        ];
        let transitions = [M::Fin, M::Complete, M::Reset, M::Told];
        assert_eq!(table.map(|(state, _)| state), S::ALL);
        for (state, row) in table {
            assert_eq!(transitions.map(|t| state.after(t).ok()), row, "{state:?}");
            let terminal = row.iter().all(Option::is_none);
            assert_eq!(state.is_terminal(), terminal, "{state:?}");
        }
    }
}
