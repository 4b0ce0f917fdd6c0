//! The code of the README and of the guide, as tests: it compiles and runs as printed.

#[doc = include_str!("../../../README.md")]
struct Readme;

#[doc = include_str!("../README.md")]
struct CrateReadme;

#[doc = include_str!("../../../docs/guide/README.md")]
struct Index;

#[doc = include_str!("../../../docs/guide/first-server.md")]
struct FirstServer;

#[doc = include_str!("../../../docs/guide/first-client.md")]
struct FirstClient;

#[doc = include_str!("../../../docs/guide/breakdown.md")]
struct ReadingABreakdown;

#[doc = include_str!("../../../docs/guide/controllers.md")]
struct ChoosingAController;

#[doc = include_str!("../../../docs/guide/lab.md")]
struct RunningTheLab;

#[doc = include_str!("../../../docs/guide/observe.md")]
struct ObservingAServer;

#[doc = include_str!("../../../docs/guide/tuning.md")]
struct TuningAHost;

#[doc = include_str!("../../../docs/guide/from-quinn.md")]
struct FromQuinn;

#[doc = include_str!("../../../docs/guide/from-hyper.md")]
struct FromHyper;
