#pragma once

#include "../error.hpp"
#include "../timeline.hpp"
#include "throw_error.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

namespace ZERO_NAMESPACE {

namespace detail {

/// Writes the events of a trace, separated by commas.
class TraceFile {
public:
    TraceFile(std::FILE* file, std::int64_t origin) : _file(file), _origin(origin) {
        std::fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[", file);
    }

    ZERO_COLD_INLINE void name(char const* kind, int rank, std::size_t track,
                               std::string const& name) {
        separate();
        std::fprintf(_file,
                     "{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%d,\"tid\":%zu,\"args\":{"
                     "\"name\":\"%s\"}}",
                     kind, rank, track, name.c_str());
    }

    /// @param bucket null: none is shown
    ZERO_COLD_INLINE void span(TimelineSpan const& span, TimelineBucket const* bucket, int rank,
                               std::size_t track, std::int64_t begin, std::int64_t end) {
        separate();
        std::fputs("{\"ph\":\"X\",\"name\":\"", _file);
        escaped(span.what.data());
        if (span.index != none) {
            std::fprintf(_file, " %zu", span.index);
        }
        std::fprintf(_file,
                     "\",\"cat\":\"%s\",\"pid\":%d,\"tid\":%zu,\"ts\":%.3f,\"dur\":%.3f,\"args\":{",
                     name_of(span.phase), rank, track, microseconds(begin - _origin),
                     microseconds(end - begin));
        if (span.is_collective) {
            std::fprintf(_file, "\"bytes\":%zu,\"parameter\":\"", span.bytes);
            escaped(span.parameter.data());
            std::fputc('"', _file);
        }
        if (bucket != nullptr) {
            std::fprintf(_file, "%s\"bucket\":%zu,\"units\":\"", span.is_collective ? "," : "",
                         bucket->number);
            escaped(bucket->units.data());
            std::fputc('"', _file);
        }
        std::fputs("}}", _file);
    }

    void close() { std::fputs("\n]}\n", _file); }

private:
    static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

    static double microseconds(std::int64_t nanoseconds) {
        return static_cast<double>(nanoseconds) * 1e-3;
    }

    void separate() {
        std::fputs(_is_first ? "\n" : ",\n", _file);
        _is_first = false;
    }

    ZERO_COLD_INLINE void escaped(char const* text) {
        for (; *text != '\0'; ++text) {
            auto const byte = static_cast<unsigned char>(*text);
            if (byte == '"' || byte == '\\') {
                std::fputc('\\', _file);
            }
            if (byte < 0x20U || byte >= 0x7fU) { // a name may be cut inside a character
                std::fprintf(_file, "\\u%04x", static_cast<unsigned>(byte));
            } else {
                std::fputc(byte, _file);
            }
        }
    }

    std::FILE* _file;
    std::int64_t _origin;
    bool _is_first = true;
};

/// Calls `visit(span, queue, begin, end)` for each event that a trace shows. A collective has two:
/// its run on the queue, and its call on the host, which may have waited for peers.
template <class Visit>
void for_each_event(Timeline& timeline, Visit const& visit) {
    constexpr std::int64_t shortest_wait = 1000;
    for (std::size_t position = 0; position < timeline.size(); ++position) {
        TimelineSpan const& span = timeline[position];
        std::int64_t const begin = span.begin;
        std::int64_t const end = span.end;
        bool const is_short = span.phase == TimelinePhase::wait && end - begin < shortest_wait;
        if (begin != TimelineSpan::unset && end >= begin && !is_short) {
            visit(span, span.queue, begin, end);
        }
        if (span.is_collective && span.queue != nullptr
            && span.returned - span.called >= shortest_wait) {
            visit(span, static_cast<void const*>(nullptr), span.called, span.returned);
        }
    }
}

/// Returns the queues of a timeline: null for the host, then the queues with collectives, then the
/// others. Sets `communicating` to the number of queues with collectives.
ZERO_COLD_INLINE std::vector<void const*> tracks_of(Timeline& timeline,
                                                    std::size_t& communicating) {
    std::vector<void const*> tracks{nullptr};
    for (bool const is_collective : {true, false}) {
        for (std::size_t position = 0; position < timeline.size(); ++position) {
            TimelineSpan const& span = timeline[position];
            if (span.is_collective == is_collective
                && std::find(tracks.begin(), tracks.end(), span.queue) == tracks.end()) {
                tracks.push_back(span.queue);
            }
        }
        communicating = is_collective ? tracks.size() - 1 : communicating;
    }
    return tracks;
}

ZERO_COLD_INLINE void write_timeline(TraceFile& file, Timeline& timeline) {
    std::size_t communicating = 0;
    auto const tracks = tracks_of(timeline, communicating);
    file.name("process_name", timeline.rank(), 0, "rank " + std::to_string(timeline.rank()));
    for (std::size_t track = 0; track < tracks.size(); ++track) {
        bool const communicates = track <= communicating;
        std::size_t const number = communicates ? track : track - communicating;
        std::string const kind = communicates ? "communication queue" : "compute queue";
        file.name("thread_name", timeline.rank(), track,
                  track == 0    ? "host"
                  : number == 1 ? kind
                                : kind + " " + std::to_string(number));
    }
    for_each_event(timeline, [&](TimelineSpan const& span, void const* queue, std::int64_t begin,
                                 std::int64_t end) {
        auto const track = static_cast<std::size_t>(std::find(tracks.begin(), tracks.end(), queue)
                                                    - tracks.begin());
        file.span(span, timeline.bucket_of(timeline.position_of(span)), timeline.rank(), track,
                  begin, end);
    });
}

} // namespace detail

ZERO_COLD_INLINE void write_timelines(std::string const& path,
                                      std::span<Timeline* const> timelines) {
    std::int64_t origin = std::numeric_limits<std::int64_t>::max();
    for (Timeline* const timeline : timelines) {
        timeline->resolve();
        detail::for_each_event(*timeline, [&](auto const&, auto, std::int64_t begin, auto) {
            origin = std::min(origin, begin);
        });
    }
    std::unique_ptr<std::FILE, int (*)(std::FILE*)> const file(
        std::fopen(path.c_str(), "w"), [](std::FILE* open) { return std::fclose(open); });
    bool is_written = file != nullptr;
    if (is_written) {
        detail::TraceFile trace(file.get(), origin);
        for (Timeline* const timeline : timelines) {
            detail::write_timeline(trace, *timeline);
        }
        trace.close();
        is_written = std::fflush(file.get()) == 0 && std::ferror(file.get()) == 0;
    }
    if (!is_written) {
        detail::throw_error<Error>({"zero: the trace '", path.c_str(),
                                    "' cannot be written: ", std::strerror(errno), "."});
    }
}

} // namespace ZERO_NAMESPACE
