//! The steering rules as classic BPF programs, which need no toolchain and no privilege.
//!
//! The kernel runs it on the UDP payload of a datagram and takes its result for the index of a
//! socket in the reuseport group. Loads are big-endian, arithmetic wraps at 32 bits, and a load
//! beyond the end returns 0 from the whole program.

use std::io;
use std::os::fd::BorrowedFd;

use libc::sock_filter;

use super::sys;
use crate::steering::{DCID_LONG, DCID_SHORT, HEADER_FORM_LONG, M1, M2, PORT_SHIFT, SteeringKey};

/// Bytes of connection ID in one load.
const WORD: u32 = 4;

/// Loads from here on are of the IP header (`SKF_NET_OFF` in linux/filter.h).
const IP_HEADER: u32 = libc::SKF_NET_OFF.cast_unsigned();

/// Length of the IPv6 header in bytes, without extension headers (RFC 8200 §3).
const IPV6_HEADER: u32 = 40;

/// Has the kernel steer the group that `fd` belongs to, over `shards` sockets in the order they
/// were bound.
pub(crate) fn attach(fd: BorrowedFd<'_>, key: SteeringKey, shards: u32) -> io::Result<()> {
    sys::attach_reuseport(fd, &program(key, shards))
}

/// Has the kernel steer the group that `fd` belongs to by the remote port, over `shards` sockets
/// in the order they were bound.
pub(crate) fn attach_by_port(fd: BorrowedFd<'_>, shards: u32) -> io::Result<()> {
    sys::attach_reuseport(fd, &program_by_port(shards))
}

/// [`crate::steering::shard_of_port`], instruction by instruction. An IPv6 datagram with extension
/// headers may go to another shard.
fn program_by_port(shards: u32) -> [sock_filter; 11] {
    use libc::{
        BPF_A, BPF_ABS, BPF_ALU, BPF_B, BPF_H, BPF_IMM, BPF_IND, BPF_JA, BPF_JEQ, BPF_JMP, BPF_K,
        BPF_LD, BPF_LDX, BPF_MOD, BPF_MSH, BPF_MUL, BPF_RET, BPF_RSH,
    };
    let op = |code: u32, k: u32| sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    };
    [
        // X = the length of the IP header, whose first four bits are the version.
        op(BPF_LD | BPF_B | BPF_ABS, IP_HEADER),
        op(BPF_ALU | BPF_RSH | BPF_K, 4),
        sock_filter {
            jf: 2,
            ..op(BPF_JMP | BPF_JEQ | BPF_K, 6)
        },
        op(BPF_LDX | BPF_IMM, IPV6_HEADER),
        op(BPF_JMP | BPF_JA, 1),
        op(BPF_LDX | BPF_B | BPF_MSH, IP_HEADER),
        // The UDP header begins with the source port.
        op(BPF_LD | BPF_H | BPF_IND, IP_HEADER),
        op(BPF_ALU | BPF_MUL | BPF_K, M1),
        op(BPF_ALU | BPF_RSH | BPF_K, PORT_SHIFT),
        op(BPF_ALU | BPF_MOD | BPF_K, shards),
        op(BPF_RET | BPF_A, 0),
    ]
}

/// [`crate::steering::shard_of`], instruction by instruction.
fn program(key: SteeringKey, shards: u32) -> [sock_filter; 22] {
    use libc::{
        BPF_A, BPF_ABS, BPF_ADD, BPF_ALU, BPF_B, BPF_IMM, BPF_IND, BPF_JA, BPF_JMP, BPF_JSET,
        BPF_K, BPF_LD, BPF_LDX, BPF_MEM, BPF_MISC, BPF_MOD, BPF_MUL, BPF_RET, BPF_RSH, BPF_ST,
        BPF_TAX, BPF_W, BPF_X, BPF_XOR,
    };
    let op = |code: u32, k: u32| sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    };
    let alu = |operation: u32, k: u32| op(BPF_ALU | operation | BPF_K, k);
    let alu_x = |operation: u32| op(BPF_ALU | operation | BPF_X, 0);
    let tax = || op(BPF_MISC | BPF_TAX, 0);
    [
        // X = where the connection ID begins.
        op(BPF_LD | BPF_B | BPF_ABS, 0),
        sock_filter {
            jf: 2,
            ..op(BPF_JMP | BPF_JSET | BPF_K, u32::from(HEADER_FORM_LONG))
        },
        op(BPF_LDX | BPF_IMM, DCID_LONG as u32),
        op(BPF_JMP | BPF_JA, 1),
        op(BPF_LDX | BPF_IMM, DCID_SHORT as u32),
        // M[0] = b, A = a.
        op(BPF_LD | BPF_W | BPF_IND, WORD),
        op(BPF_ST, 0),
        op(BPF_LD | BPF_W | BPF_IND, 0),
        // A = mix(a, b).
        alu(BPF_XOR, key.k0),
        alu(BPF_MUL, M1),
        tax(),
        alu(BPF_RSH, 15),
        alu_x(BPF_XOR),
        op(BPF_LDX | BPF_MEM, 0),
        alu_x(BPF_ADD),
        alu(BPF_XOR, key.k1),
        alu(BPF_MUL, M2),
        tax(),
        alu(BPF_RSH, 13),
        alu_x(BPF_XOR),
        alu(BPF_MOD, shards),
        op(BPF_RET | BPF_A, 0),
    ]
}
