//! msquic as a server.

use std::{sync::Arc, thread};

use anyhow::{Context, Result};
use contract::runner::{Environment, requested_path};
use msquic::{
    CertificateFile, Configuration, ConnectionEvent, Credential, CredentialConfig, Listener,
    ListenerEvent, Registration, RegistrationConfig, SendFlags, ServerResumptionLevel, Status,
    StreamEvent, StreamRef, StreamShutdownFlags,
};

use crate::{alpn, ffi, settings};

/// Application error code of a request that cannot be answered.
const NOT_FOUND: u64 = 1;

/// Serves until killed.
pub(crate) fn run(environment: Environment) -> Result<()> {
    let registration = Registration::new(&RegistrationConfig::default())?;
    if environment.test_case == "retry" {
        ffi::always_retry()?;
    }
    let settings = settings().set_ServerResumptionLevel(ServerResumptionLevel::ResumeAndZerortt);
    let configuration = Configuration::open(&registration, &alpn(), Some(&settings))?;
    let file = |name: &str| {
        let path = environment.certs.join(name);
        path.to_str().map(str::to_owned).context("not UTF-8")
    };
    let certificate = CertificateFile::new(file("priv.key")?, file("cert.pem")?);
    let credential = Credential::CertificateFile(certificate);
    configuration.load_credential(&CredentialConfig::new().set_credential(credential))?;
    let port = environment.port;
    let environment = Arc::new(environment);
    let listener = Listener::open(&registration, move |_, event| {
        if let ListenerEvent::NewConnection { connection, .. } = event {
            let environment = environment.clone();
            connection.set_callback_handler(move |connection, event| {
                match event {
                    ConnectionEvent::Connected { .. } => ffi::send_ticket(&connection),
                    ConnectionEvent::PeerStreamStarted { stream, .. } => {
                        serve(&stream, environment.clone());
                    }
                    ConnectionEvent::ShutdownComplete { .. } => ffi::close_connection(&connection),
                    _ => {}
                }
                Ok(())
            });
            connection.set_configuration(&configuration)?;
        }
        Ok::<(), Status>(())
    })?;
    listener.start(&alpn(), Some(&ffi::any_address(port)))?;
    println!("listening on port {port}");
    loop {
        thread::park();
    }
}

/// Answers the request on a stream.
fn serve(stream: &StreamRef, environment: Arc<Environment>) {
    let mut request = Vec::new();
    stream.set_callback_handler(move |stream, event| {
        match event {
            StreamEvent::Receive { buffers, .. } => {
                for buffer in buffers {
                    request.extend_from_slice(buffer.as_bytes());
                }
            }
            StreamEvent::PeerSendShutdown => {
                let content = requested_path(&request).and_then(|path| environment.page(path));
                match content {
                    Some(content) => ffi::send(&stream, content, SendFlags::NONE)?,
                    None => stream.shutdown(StreamShutdownFlags::ABORT, NOT_FOUND)?,
                }
            }
            StreamEvent::SendComplete { client_context, .. } => ffi::sent(client_context),
            StreamEvent::ShutdownComplete { .. } => ffi::close_stream(&stream),
            _ => {}
        }
        Ok(())
    });
}
