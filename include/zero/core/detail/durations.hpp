#pragma once

/// @file
/// @brief Clocks and durations, as `<condition_variable>` needs them for its own declarations.
/// `<chrono>` adds calendars and formatting, which was a third of what all standard headers
/// together cost a unit.
