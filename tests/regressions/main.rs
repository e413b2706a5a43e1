//! Regressions, each module named after its case (see the project's list of field cases).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "a test program")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/counting.rs"]
mod counting;

/// Counts allocations per thread, for the cases about memory that grows.
#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

mod bad_model_files;
mod c01_silent_source;
mod c02_fair_shares;
mod c04_usb_unplug;
mod camera_child;
mod changeover;
mod d01_layout_mistaken;
mod d02_nms_free;
mod d03_other_tasks;
mod d04_wrong_names;
mod d07_box_flood;
mod dynamic_export;
mod every_lane_is_proved;
mod false_alarms;
mod fault_table;
mod guard_simulated_day;
mod incidents;
mod known_answers;
mod line;
mod line_heals;
mod n01_half_precision_border;
mod n02_half_overflow;
mod n02_nan_inf;
mod n04_picture_kinds;
mod p01_asymmetric_qdq;
mod p02_dynamic_input;
mod p04_precision_not_found;
mod p08_weak_cache_key;
mod r04_reload;
mod r04_room_for_two;
mod r05_slow_growth;
mod r05_whole_line;
mod r07_device_nodes;
mod r08_crossed_ids;
mod s02_plugin_node;
mod s03_output_count;
mod s09_batch_slots;
mod s11_other_sizes;
mod several_bundles;
mod shared_models;
mod standby_device;
mod ten_thousand_parts;
