//! Whole-product tests.

mod api;
mod commands;
mod crash;
mod demo;
mod files;
mod harness;
mod input;
mod isolation;
mod network;
mod sandboxes;
mod secrets;
mod sessions;
mod support;
mod terminals;
