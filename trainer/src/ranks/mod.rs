//! The ranks of a run: threads of a process, or processes on one host or several; and the
//! connections between them.
//!
//! ```text
//! threads.rs      ranks that are threads of this process
//! process.rs      a process that is a rank, as torchrun, mpirun or srun starts it
//! c10d/           processes that torch connects
//! hosts.rs        which ranks share a host
//! comms.rs        the communicators of a rank
//! clock.rs        seconds of exchanges
//! traffic.rs      what ranks sent, by phase and route
//! ```

pub mod c10d;
pub mod clock;
pub mod comms;
pub mod hosts;
pub mod process;
pub mod threads;
pub mod traffic;
