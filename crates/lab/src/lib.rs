//! The lab: production code on simulated networks, in virtual time.
//!
//! Run a congestion controller, or a whole client and server, over a simulated
//! network, and see in seconds whether it survives, how fast it is, and why. The
//! same seed gives the same packets at the same times with the same sizes and
//! the same decisions, on any machine.
//!
//! | module | contents |
//! |---|---|
//! | [`world`] | hosts and links with one clock |
//! | [`stack`] | the interface to a transport, and ours |
//! | [`app`] | applications above the transport, and workloads |
//! | [`scenario`] | networks with workloads and bars, as data, and the catalogue |
//! | [`measure`] | the results of a run, and metrics |
//! | [`run`] | running plans on several cores, and checking bars |
//! | `specimens` | known bugs, each with a network that shows it (feature `specimens`) |
//! | [`sweep`] | grids of paths |
//! | [`hunt`] | the search for networks in which a controller does worst |
//! | [`pcapng`] | captures that Wireshark can decrypt |
//!
//! # Your own client and server
//!
//! In your own tests, with `clearway-lab` among the `[dev-dependencies]`. A client
//! and a server are async functions of a connection; the network stands in one
//! line. This server echoes, over 10 Mbit/s and 30 ms that lose one packet in fifty:
//!
//! ```
//! use std::time::Duration;
//!
//! use clearway_lab::app::{Script, ScriptConn};
//! use clearway_lab::stack::ClearwayFactory;
//! use clearway_lab::world::{Network, RunEnd, World};
//!
//! # /*
//! #[test]
//! # */
//! fn echo_completes_over_a_lossy_path() {
//!     let network = Network::symmetric("rate=10M delay=15ms queue=25 loss=2%").unwrap();
//!     let (mut world, stack) = (World::new(&network, 7), ClearwayFactory::default());
//!     let echo = async |conn: ScriptConn| {
//!         let stream = conn.accept().await?;
//!         let question = conn.read_all(stream).await?;
//!         conn.say(stream, question).await
//!     };
//!     let server = world.server(&stack, move || Script::new(echo));
//!     world.client(&stack, server, Script::new(async |conn: ScriptConn| {
//!         let stream = conn.open().await?;
//!         conn.say(stream, "hello").await?;
//!         assert_eq!(conn.read_all(stream).await?, b"hello");
//!         Ok(())
//!     }));
//!     assert_eq!(world.run(Duration::from_secs(10)).unwrap(), RunEnd::Done);
//! }
//! # echo_completes_over_a_lossy_path();
//! ```
//!
//! The seed is the 7: the same seed gives the same run, and `world.digest()` identifies
//! it. `ClearwayFactory::with_controller` selects another controller, and `tls.protocol`
//! of a factory carries streams as HTTP/3 requests; `conn.sleep` sleeps in virtual time.
//! A client that is a state machine already can implement [`app::Application`] itself.
//!
//! # Running a controller through the catalogue
//!
//! ```no_run
//! use clearway_lab::run::{Plan, Settings, run_all};
//! use clearway_lab::scenario::{Size, find};
//!
//! let mut plan = Plan::default();
//! plan.add(find("death_spiral")?, Size::Ci, &["cubic".to_owned()], None)?;
//! run_all(&plan, &Settings::quiet(2), |_task, row| {
//!     assert!(row.failed.is_empty(), "seed {}: {:?}", row.seed, row.failed);
//! });
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Another stack
//!
//! Any sans-I/O stack can be plugged
//! in: implement [`stack::Stack`] and [`stack::StackFactory`], and hand the
//! factory to a run by [`run::RunObservers::stack`].
pub mod app;
pub mod hunt;
pub mod measure;
pub mod pcapng;
pub mod run;
pub mod scenario;
#[cfg(feature = "specimens")]
pub mod specimens;
pub mod stack;
pub mod sweep;
pub mod world;
