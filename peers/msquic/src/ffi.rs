//! What msquic's crate leaves to its C functions.
#![expect(
    unsafe_code,
    reason = "the crate has no safe functions for sending, for parameters and for handles"
)]

use std::{
    ffi::c_void,
    net::{Ipv6Addr, SocketAddr},
    ptr,
};

use msquic::{
    Addr, Api, BufferRef, Connection, ConnectionRef, SendFlags, Status, Stream, StreamRef,
    ffi::{
        HQUIC, QUIC_PARAM_CONN_RESUMPTION_TICKET, QUIC_PARAM_GLOBAL_RETRY_MEMORY_PERCENT,
        QUIC_SEND_RESUMPTION_FLAGS_QUIC_SEND_RESUMPTION_FLAG_FINAL,
    },
};

/// `QUIC_PARAM_CONN_FORCE_KEY_UPDATE` of msquic's `msquicp.h`, a parameter for tests without a value.
const FORCE_KEY_UPDATE: u32 = 0x8500_0000;

/// Bytes that are being sent, and msquic's description of them, at addresses that do not change.
struct Sending {
    _bytes: Vec<u8>,
    buffer: BufferRef,
}

/// Sends everything that a stream will send. [`sent`] has to be called for its SEND_COMPLETE.
pub(crate) fn send(stream: &Stream, bytes: Vec<u8>, flags: SendFlags) -> Result<(), Status> {
    let buffer = BufferRef::from(bytes.as_slice());
    let context = Box::into_raw(Box::new(Sending {
        _bytes: bytes,
        buffer,
    }));
    // SAFETY: the buffer lives until `sent` or the failure below; moving the vector into the box did
    // not move its bytes.
    let sent = unsafe {
        let buffers = std::slice::from_ref(&(*context).buffer);
        stream.send(buffers, flags | SendFlags::FIN, context.cast::<c_void>())
    };
    if sent.is_err() {
        // SAFETY: msquic has not taken it.
        drop(unsafe { Box::from_raw(context) });
    }
    sent
}

/// Frees what [`send`] kept, by the context of SEND_COMPLETE.
pub(crate) fn sent(context: *const c_void) {
    // SAFETY: all contexts are those of `send`, and each completes once.
    drop(unsafe { Box::from_raw(context.cast_mut().cast::<Sending>()) });
}

/// Leaves a stream to its handler, which calls [`close_stream`].
pub(crate) fn detach(stream: Stream) {
    // SAFETY: the handler closes the handle, if it has not yet.
    unsafe { stream.into_raw() };
}

/// Closes the handle of a stream, in its SHUTDOWN_COMPLETE.
pub(crate) fn close_stream(stream: &StreamRef) {
    // SAFETY: nobody else owns it: `detach` or the peer's start left it to the handler.
    drop(unsafe { Stream::from_raw(stream.as_raw()) });
}

/// Closes the handle of a connection that the listener accepted, in its SHUTDOWN_COMPLETE.
pub(crate) fn close_connection(connection: &ConnectionRef) {
    // SAFETY: nobody else owns it: the listener left it to the handler.
    drop(unsafe { Connection::from_raw(connection.as_raw()) });
}

/// Has the client of a connection get a session ticket.
pub(crate) fn send_ticket(connection: &ConnectionRef) {
    let flags = QUIC_SEND_RESUMPTION_FLAGS_QUIC_SEND_RESUMPTION_FLAG_FINAL;
    if let Some(send) = Api::get_ffi().ConnectionSendResumptionTicket {
        // SAFETY: the handle is valid in its handler, and there is no data of the application.
        unsafe { send(connection.as_raw(), flags, 0, ptr::null()) };
    }
}

/// Gives a connection that has not been started the ticket of another.
pub(crate) fn resume(connection: &Connection, ticket: &[u8]) -> Result<(), Status> {
    // SAFETY: the ticket is valid for the call, which copies it.
    unsafe {
        set(
            connection.as_raw(),
            QUIC_PARAM_CONN_RESUMPTION_TICKET,
            ticket,
        )
    }
}

/// Begins a key update.
pub(crate) fn update_keys(connection: &Connection) -> Result<(), Status> {
    // SAFETY: the parameter has no value.
    unsafe { Api::set_param(connection.as_raw(), FORCE_KEY_UPDATE, 0, ptr::null()) }
}

/// Has every listener validate every address with Retry.
pub(crate) fn always_retry() -> Result<(), Status> {
    // SAFETY: the percentage is valid for the call.
    unsafe {
        set(
            ptr::null_mut(),
            QUIC_PARAM_GLOBAL_RETRY_MEMORY_PERCENT,
            &0_u16.to_ne_bytes(),
        )
    }
}

/// Returns the address with which a listener takes connections of IPv4 and of IPv6: the port, and no
/// family (`QUIC_ADDRESS_FAMILY_UNSPEC`), for which the crate has no function.
pub(crate) fn any_address(port: u16) -> Addr {
    let mut address = Addr::from(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port));
    // SAFETY: an address begins with its family, of 16 bits on Linux, and 0 is one.
    unsafe { ptr::from_mut(&mut address).cast::<u16>().write(0) };
    address
}

/// # Safety
/// The handle has to be valid.
unsafe fn set(handle: HQUIC, parameter: u32, value: &[u8]) -> Result<(), Status> {
    // SAFETY: the caller's handle, and a value that is valid for the call.
    unsafe {
        Api::set_param(
            handle,
            parameter,
            value.len() as u32,
            value.as_ptr().cast::<c_void>(),
        )
    }
}
