//! Whole-product tests.

mod api;
mod commands;
mod crash;
mod demo;
mod files;
mod flood;
mod forks;
mod harness;
mod input;
mod isolation;
mod network;
mod observe;
mod ports;
mod previews;
mod presets;
mod replay;
mod sandboxes;
mod search;
mod secrets;
mod sessions;
mod ssh;
mod support;
mod surroundings;
mod survival;
mod terminals;
mod way_out;
