//! One execution: into a folder, in processes, in shards, with its provenance.
//!
//! [`sweeps`] runs cases and [`scenarios`] stories, both through [`journal`]; [`plan`] says what a command line selects and costs,
//! [`shard`] splits and joins, [`worker`] is a case in a process of its own, [`shared`] several in one, [`record`] keeps what a GPU returned.

pub mod facts;
pub(crate) mod journal;
pub(crate) mod lock;
pub mod maps;
pub mod plan;
pub(crate) mod provenance;
mod queue;
pub mod record;
pub(crate) mod scenarios;
pub(crate) mod shard;
pub(crate) mod shared;
pub(crate) mod sweeps;
pub(crate) mod totals;
pub(crate) mod worker;
