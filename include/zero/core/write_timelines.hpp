#pragma once

#include "detail/namespace.hpp"
#include "timeline.hpp"

#include <span>
#include <string>

namespace ZERO_NAMESPACE {

/// @brief Writes timelines as one file in the Chrome trace format, which Perfetto
/// (ui.perfetto.dev) and chrome://tracing show.
///
/// A rank is a process. Each of its queues is a track, and so is the thread that enqueues
/// ("host"), with its waits and its calls of collectives. Waits below a microsecond are left out.
/// Times are microseconds from the first span on. Ranks of different machines do not share a
/// clock.
/// @param path the file, which is replaced
/// @param timelines timelines of some ranks, whose queues must have run everything
/// @throws Error if the file cannot be written; the error of a device whose times cannot be read
void write_timelines(std::string const& path, std::span<Timeline* const> timelines);

} // namespace ZERO_NAMESPACE

#if !defined(ZERO_COMPILED)
#include "detail/write_timelines.ipp"
#endif
