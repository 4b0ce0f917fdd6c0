//! The meaning of each errno of each call, decided in one place.
//!
//! Two things make it less than obvious. First, an ICMP error about an earlier datagram, to
//! whatever destination, is pending on the socket (`sk_err`) until the next call of any kind
//! returns it as its own failure: `sock_error()` in `sock_alloc_send_pskb` (net/core/sock.c) and
//! `do_recvmmsg` (net/socket.c). Anyone who can guess two ports and spoof an address can make calls
//! fail with the errnos that `icmp_err_convert` (net/ipv4/icmp.c) and `icmpv6_err_convert`
//! (net/ipv6/icmp.c) contain, as often as they like. None of those may be fatal. Secondly, packet
//! filters, security modules and BPF programs may return any errno, so one that is not listed here
//! must not stop a server.
//!
//! Based on the kernel's sources, 4.18 to 6.18: net/socket.c, net/core/{sock,dev,datagram}.c,
//! net/ipv4/{udp,icmp,ip_output,route,ip_sockglue}.c and their counterparts in net/ipv6.

use crate::DropKind;

/// The system calls of a bound socket, and the one that sets it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    not(any(test, feature = "testing")),
    expect(unreachable_pub, reason = "only tests name calls from outside")
)]
pub enum Call {
    /// `sendmsg`: one message, which may be a train.
    SendMessage,
    /// `sendmmsg`: several messages.
    SendMessages,
    /// `recvmmsg`: several messages.
    ReceiveMessages,
    /// `recvmsg` with `MSG_ERRQUEUE`: one ICMP error.
    ReadErrors,
    /// `setsockopt` of an optional feature.
    SetOption,
}

/// The meaning of an errno of `sendmsg` or `sendmmsg`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendErrno {
    /// Nothing happened: call again at once.
    Again,
    /// The send buffer is full: wait until the socket is writable.
    Wait,
    /// This message is certainly lost.
    Lost(DropKind),
    /// This message is lost, or the errno belongs to an ICMP error about another one: only a
    /// repeated call tells.
    Doubtful(DropKind),
    /// A datagram is larger than the local link's MTU, or the errno belongs to an ICMP error.
    TooLarge,
    /// The kernel rejects a parameter; for a train, possibly that it is one.
    Objection,
    /// Not documented for this call.
    Unexplained,
    /// The descriptor will never send.
    Broken,
}

/// The meaning of an errno of `recvmmsg`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecvErrno {
    /// Nothing happened: call again at once.
    Again,
    /// No datagram is waiting: wait until the socket is readable.
    Wait,
    /// A pending ICMP error about an earlier send, cleared by this call. Call again.
    Queued,
    /// A failure that may be temporary, known or not.
    Unavailable,
    /// The descriptor will never receive.
    Broken,
}

/// The meaning of an errno of reading the error queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorQueueErrno {
    /// Nothing happened: call again at once.
    Again,
    /// The queue is empty.
    Empty,
    /// The queue cannot be read at the moment. Nothing depends on it: it is emptied unread.
    Unreadable,
    /// The descriptor is invalid.
    Broken,
}

/// The meaning of an errno of setting an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetOptionErrno {
    /// The option is not available; the socket works without it.
    NotGranted,
    /// The descriptor is invalid.
    Broken,
}

/// `sendmsg`, and `sendmmsg`, which stops at the first message that fails and returns its
/// errno only if no message went before.
pub(crate) fn sending(errno: i32) -> SendErrno {
    match errno {
        // A signal does not interrupt a non-blocking call, but a tracer or a filter may.
        libc::EINTR => SendErrno::Again,
        // sock_alloc_send_pskb: more bytes are queued than SO_SNDBUF. xfrm_lookup: an IPsec
        // association is under negotiation, and no edge tells when it is done, so waiting
        // for one has to be bounded.
        libc::EAGAIN => SendErrno::Wait,
        // net_xmit_errno: a queueing discipline threw it away; alloc_skb: no memory. Neither
        // is followed by an edge when it has passed, so it is a loss and not a wait.
        libc::ENOBUFS | libc::ENOMEM => SendErrno::Lost(DropKind::NoBuffers),
        // nf_hook: netfilter's DROP in OUTPUT; a cgroup's BPF program; IPsec policy "block".
        libc::EPERM => SendErrno::Lost(DropKind::Forbidden),
        // dev_queue_xmit: the interface is down. ip_cmsg_send, ip6_datagram_send_ctl: there is no
        // interface with that index any more. A tunnel device without a remote end returns ENXIO.
        libc::ENETDOWN | libc::ENODEV | libc::ENXIO => SendErrno::Lost(DropKind::Unreachable),
        // udp_sendmsg, udpv6_sendmsg: not an address of this socket's family.
        libc::EAFNOSUPPORT => SendErrno::Lost(DropKind::Unreachable),
        // ip6_route_output: the source address has gone.
        libc::EADDRNOTAVAIL => SendErrno::Lost(DropKind::NoSuchSource),
        // ICMP 3/0, 3/6, 3/9, 3/11; ICMPv6 1/0; ip_route_output: no route.
        libc::ENETUNREACH => SendErrno::Doubtful(DropKind::Unreachable),
        // ICMP 3/1, 3/10, 3/12 to 3/15, 11; ICMPv6 1/2, 1/3, 3; fib_props: an "unreachable"
        // route; a neighbour that does not answer.
        libc::EHOSTUNREACH => SendErrno::Doubtful(DropKind::Unreachable),
        // ICMP only: 3/2, 3/5, 3/7, 3/8; parameter problems and ICMPv6 of unassigned types.
        // UDP's own EOPNOTSUPP is for MSG_OOB, which is not used.
        libc::ENOPROTOOPT | libc::EOPNOTSUPP | libc::EHOSTDOWN | libc::ENONET | libc::EPROTO => {
            SendErrno::Doubtful(DropKind::Unreachable)
        }
        // ICMP only: 3/3, ICMPv6 1/4.
        libc::ECONNREFUSED => SendErrno::Doubtful(DropKind::Refused),
        // ICMPv6 1/1, 1/5, 1/6; fib_props: a "prohibit" route; udp_sendmsg: broadcast.
        libc::EACCES => SendErrno::Doubtful(DropKind::Forbidden),
        // udp_sendmsg: over 65,535 bytes; ip_append_data: larger than the interface's MTU
        // under "don't fragment"; udp_send_skb: the same of a train's segments (since 6.14,
        // EINVAL before); ICMP 3/4, ICMPv6 2.
        libc::EMSGSIZE => SendErrno::TooLarge,
        // udp_send_skb: more segments than UDP_MAX_SEGMENTS, no checksums, segments larger than the
        // MTU (before 6.14). For single datagrams too: udp_sendmsg, port 0; ip_route_output: a
        // source address that does not belong to this host; a "blackhole" route.
        libc::EINVAL => SendErrno::Objection,
        // udp_send_skb: the route's interface computes no checksums (before 6.11), or it is an
        // IPsec one: trains are rejected. Not known for single datagrams.
        libc::EIO => SendErrno::Objection,
        // Not a descriptor, not a socket; sock_alloc_send_pskb: shut down for sending; a
        // system call filter.
        libc::EBADF | libc::ENOTSOCK | libc::EPIPE | libc::ENOSYS => SendErrno::Broken,
        _ => SendErrno::Unexplained,
    }
}

/// `recvmmsg`.
pub(crate) fn receiving(errno: i32) -> RecvErrno {
    match errno {
        libc::EINTR => RecvErrno::Again,
        // __skb_recv_udp: the queue is empty, or held only what failed its checksum.
        libc::EAGAIN => RecvErrno::Wait,
        // Those of ICMP, as in `sending`. `do_recvmmsg` returns a pending one before it receives.
        libc::ECONNREFUSED
        | libc::EHOSTUNREACH
        | libc::ENETUNREACH
        | libc::EHOSTDOWN
        | libc::ENONET
        | libc::EMSGSIZE
        | libc::ENOPROTOOPT
        | libc::EOPNOTSUPP
        | libc::EPROTO
        | libc::EACCES => RecvErrno::Queued,
        // udp_abort: an administrator's `ss --kill`. The error is returned once; the socket keeps
        // its port and continues to work.
        libc::ECONNABORTED => RecvErrno::Queued,
        // Not a descriptor, not a socket; a system call filter.
        libc::EBADF | libc::ENOTSOCK | libc::ENOSYS => RecvErrno::Broken,
        // ENOMEM and ENOBUFS are temporary. `do_recvmmsg` also keeps an error that stopped it in
        // the middle (EFAULT, say) for the next call, so the one after that may succeed.
        _ => RecvErrno::Unavailable,
    }
}

/// `recvmsg` with `MSG_ERRQUEUE`: ip_recv_error, ipv6_recv_error.
pub(crate) fn reading(errno: i32) -> ErrorQueueErrno {
    match errno {
        libc::EINTR => ErrorQueueErrno::Again,
        libc::EAGAIN => ErrorQueueErrno::Empty,
        libc::EBADF | libc::ENOTSOCK => ErrorQueueErrno::Broken,
        // No other errno is known. Errors that cannot be read must still not accumulate: they count
        // against the receive buffer.
        _ => ErrorQueueErrno::Unreadable,
    }
}

/// `setsockopt` of an optional feature: an older kernel returns ENOPROTOOPT, a sandbox EPERM,
/// EOPNOTSUPP or ENOSYS, an address family EINVAL.
pub(crate) fn setting(errno: i32) -> SetOptionErrno {
    match errno {
        libc::EBADF | libc::ENOTSOCK => SetOptionErrno::Broken,
        _ => SetOptionErrno::NotGranted,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fmt::Debug;

    use super::*;

    /// Linux's errnos (include/uapi/asm-generic/errno.h); 41 and 58 are unused.
    const ALL: std::ops::RangeInclusive<i32> = 1..=133;

    /// The whole table of one call as text: one line per meaning, with its errnos.
    fn table<M: Debug>(meaning: impl Fn(i32) -> M) -> String {
        let mut lines: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for errno in ALL {
            let line = lines.entry(format!("{:?}", meaning(errno))).or_default();
            line.push(errno.to_string());
        }
        let lines = lines
            .iter()
            .map(|(meaning, errnos)| format!("{meaning}: {}\n", errnos.join(" ")));
        lines.collect()
    }

    #[test]
    fn every_errno_of_sending_has_its_meaning() {
        let expected = "\
Again: 4
Broken: 9 32 38 88
Doubtful(Forbidden): 13
Doubtful(Refused): 111
Doubtful(Unreachable): 64 71 92 95 101 112 113
Lost(Forbidden): 1
Lost(NoBuffers): 12 105
Lost(NoSuchSource): 99
Lost(Unreachable): 6 19 97 100
Objection: 5 22
TooLarge: 90
Unexplained: 2 3 7 8 10 14 15 16 17 18 20 21 23 24 25 26 27 28 29 30 31 33 34 35 36 37 39 40 41 \
42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 65 66 67 68 69 70 72 73 74 75 76 \
77 78 79 80 81 82 83 84 85 86 87 89 91 93 94 96 98 102 103 104 106 107 108 109 110 114 115 116 117 \
118 119 120 121 122 123 124 125 126 127 128 129 130 131 132 133
Wait: 11
";
        assert_eq!(table(sending), expected);
    }

    #[test]
    fn every_errno_of_receiving_has_its_meaning() {
        let table = table(receiving);
        let expected = "\
Again: 4
Broken: 9 38 88
Queued: 13 64 71 90 92 95 101 103 111 112 113
";
        assert_eq!(
            table.lines().take(3).collect::<Vec<_>>(),
            expected.lines().collect::<Vec<_>>()
        );
        assert!(table.ends_with("Wait: 11\n"));
        assert_eq!(table.lines().count(), 5, "the rest is Unavailable: {table}");
    }

    #[test]
    fn every_errno_of_reading_and_setting_has_its_meaning() {
        let table_of_reading = table(reading);
        for line in ["Again: 4", "Broken: 9 88", "Empty: 11"] {
            assert!(table_of_reading.lines().any(|have| have == line), "{line}");
        }
        assert_eq!(
            table_of_reading.lines().count(),
            4,
            "the rest is Unreadable"
        );
        let table_of_setting = table(setting);
        assert!(table_of_setting.starts_with("Broken: 9 88\nNotGranted: 1 2 3"));
        assert_eq!(table_of_setting.lines().count(), 2);
    }

    /// `icmp_err_convert` and `icmpv6_err_convert`: the errnos that forged ICMP errors can cause.
    #[test]
    fn errnos_of_icmp_errors_are_never_fatal() {
        for errno in [
            libc::ENETUNREACH,
            libc::EHOSTUNREACH,
            libc::ENOPROTOOPT,
            libc::ECONNREFUSED,
            libc::EMSGSIZE,
            libc::EOPNOTSUPP,
            libc::EHOSTDOWN,
            libc::ENONET,
            libc::EPROTO,
            libc::EACCES,
        ] {
            let sent = sending(errno);
            assert!(
                matches!(sent, SendErrno::Doubtful(_) | SendErrno::TooLarge),
                "{errno}: {sent:?}"
            );
            assert_eq!(receiving(errno), RecvErrno::Queued, "{errno}");
        }
    }
}
