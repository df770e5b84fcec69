#pragma once

/// @file
/// @brief Clocks and durations, as `<condition_variable>` needs them for its own declarations. `<chrono>` adds calendars and formatting, which
/// costs every unit that includes it a third of all other standard headers together.

#include <condition_variable>
