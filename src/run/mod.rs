//! One execution: into a folder, in processes, in shards, with its provenance.
//!
//! [`sweeps`] runs cases and [`scenarios`] stories, both through [`journal`]; [`plan`] says what a command line selects and costs,
//! [`shard`] splits and joins, [`worker`] is a case in a process of its own, [`record`] keeps what a GPU returned.

pub mod facts;
pub mod journal;
pub mod lock;
pub mod maps;
pub mod plan;
pub mod provenance;
pub mod record;
pub mod scenarios;
pub mod shard;
pub mod sweeps;
pub mod totals;
pub mod worker;
