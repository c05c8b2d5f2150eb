//! Labelled cases, from what each vantage observed to the right verdict and the right action or inaction, run through
//! `decide` as live detection runs it.
//!
//! In the order of the flow: [`case`] reads a file and [`token`] its words; [`world`] turns a case into a configuration
//! and observations; [`course`] folds, judges and plans as a coordinator does; [`action`] names what came of it in the
//! file's words; [`grade`] compares; [`baseline`] does the same for what people use today; [`table`] prints both.

pub mod action;
pub mod baseline;
pub mod case;
pub mod course;
pub mod grade;
pub mod table;
pub mod token;
pub mod world;
