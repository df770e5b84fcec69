// What holds in every step of an engine with states in a file.

#include "support/catch.hpp"
#include "support/stages.hpp"

#include "offload_model.hpp"

#include <zero/comm/loopback.hpp>
#include <zero/comm/timed.hpp>
#include <zero/core/timeline.hpp>
#include <zero/host/host_backend.hpp>
#include <zero/zero.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <sys/stat.h>

namespace zero::test::offload_pipeline_test {

namespace {

/// Three requests that are under way at once.
std::atomic<std::size_t> met{3};

void meet() {
    ++met;
    met.notify_all();
    for (std::size_t seen = 0; (seen = met) < 3;) {
        met.wait(seen);
    }
}

/// Counts the updates of chunks that were begun.
struct CountingBackend : HostBackend {
    inline static std::atomic<std::size_t> updates{0};
    inline static std::atomic<std::size_t> meeting{0}; ///< number of the update that meets others

    template <class Optimizer, class Slices, class Group>
    static void update(Queue queue, Slices const& slices, Group const* groups,
                       UpdateDecision const* decision) {
        HostBackend::run(queue, [] {
            std::size_t const own = ++updates;
            updates.notify_all();
            if (own == meeting) {
                meet();
            }
        });
        HostBackend::update<Optimizer>(queue, slices, groups, decision);
    }
};

using Both = Offload<To<FileTier, BufferKind::optimizer_state, BufferKind::master_weights>>;
template <int N>
using InFile = ZeroStage<N, Parameters<bfloat16>, Loopback<CountingBackend>, Both>;
using Ranks = InFile<0>::Communicator;
template <int N>
using AllInFile = ZeroStage<N, Parameters<bfloat16>, Loopback<CountingBackend>, OffloadAll<N>>;

/// Counts time in units of one read, update or write of a chunk: the time at which each queue has
/// done what was enqueued, if nothing but order and events holds it up.
struct ClockedBackend : HostBackend {
    struct Point {
        Event event;
        std::size_t time;
    };
    inline static std::map<Queue, std::size_t> now;
    inline static std::vector<Point> points;
    inline static std::size_t updates = 0;

    static Event note(Queue queue, Event const& event, std::size_t duration) {
        now[queue] += duration;
        points.push_back({event, now[queue]});
        return event;
    }
    static Event record(Queue queue) {
        run(queue, [] {}); // no two points are equal
        return note(queue, HostBackend::record(queue), 0);
    }
    static void wait(Queue queue, Event const& event, Fence fence) {
        for (Point const& point : points) {
            if (!event.is_of(nullptr) && event.is_not_after(point.event)
                && point.event.is_not_after(event)) {
                now[queue] = std::max(now[queue], point.time);
            }
        }
        HostBackend::wait(queue, event, fence);
    }
    template <class Optimizer, class Slices, class Group>
    static void update(Queue queue, Slices const& slices, Group const* groups,
                       UpdateDecision const* decision) {
        HostBackend::update<Optimizer>(queue, slices, groups, decision);
        ++now[queue];
        ++updates;
    }
};

struct ClockedTier : FileTier {
    using FileTier::FileTier;

    host::Event read(std::size_t chunk, void* to) {
        return ClockedBackend::note(reading_queue(chunk), FileTier::read(chunk, to), 1);
    }
    host::Event write(std::size_t chunk, void* from, bool const* is_left_out = nullptr) {
        return ClockedBackend::note(writing_queue(chunk), FileTier::write(chunk, from, is_left_out),
                                    1);
    }
};

/// Calls something before each command that the library passes as a function, if it is set.
struct GatedBackend : HostBackend {
    inline static std::function<void()> before;

    template <class F>
    static void run(Queue queue, F const& functor) {
        HostBackend::run(queue, [functor] {
            if (before) {
                before();
            }
            functor();
        });
    }
};

/// Counts engines that cancelled their requests.
struct WatchedTier : FileTier {
    using FileTier::FileTier;
    inline static std::atomic<int> cancelled{0};

    void cancel() noexcept {
        ++cancelled;
        FileTier::cancel();
    }
};

FileTierOptions in_folder(TemporaryFolder const& folder, FileCalls& calls) {
    return {.path = folder.path(),
            .chunk_bytes = 1500,
            .depth = 2,
            .allow_page_cache = true,
            .calls = &calls};
}

/// The files of the system, and their descriptors.
class SeenFiles final : public FileCalls {
public:
    std::atomic<int> created{0};
    std::atomic<int> allocations{0};

    int create(char const* folder, bool is_direct) override {
        ++created;
        return last = system().create(folder, is_direct);
    }
    std::int64_t alignment(int file, bool is_direct) override {
        return system().alignment(file, is_direct);
    }
    int allocate(int file, std::uint64_t bytes) override {
        ++allocations;
        return system().allocate(file, bytes);
    }
    std::int64_t read(int file, void* to, std::size_t bytes, std::uint64_t offset) override {
        return system().read(file, to, bytes, offset);
    }
    std::int64_t write(int file, void const* from, std::size_t bytes,
                       std::uint64_t offset) override {
        return system().write(file, from, bytes, offset);
    }
    void close(int file) noexcept override { system().close(file); }

    int last = -1;
};

/// The resources that a long run could use up.
struct Resources {
    std::size_t memory = 0;      ///< bytes of the memory resource
    std::int64_t file_bytes = 0; ///< size of the file
    std::int64_t disk_blocks = 0;
    std::set<std::string> descriptors;
};

Resources resources_now(SeenFiles const& files, HostMemoryResource const& memory) {
    Resources now;
    now.memory = memory.allocated_bytes();
    struct ::stat status {};
    CHECK(::fstat(files.last, &status) == 0);
    now.file_bytes = status.st_size;
    now.disk_blocks = status.st_blocks;
    std::error_code ignored; // not on every system
    for (auto const& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored)) {
        std::string const name = entry.path().filename().string();
        auto const target = std::filesystem::read_symlink(entry.path(), ignored);
        if (target != "/proc/" + std::to_string(::getpid()) + "/fd") { // that of this loop
            now.descriptors.insert(name + " " + target.string());
        }
    }
    return now;
}

} // namespace

TEST_CASE("A read of the third chunk may wait until the update of the second has begun") {
    in_every_stage([&]<int N>() {
        for (std::size_t depth = 1; depth <= 4; ++depth) {
            INFO("depth " << depth);
            TemporaryFolder const folder;
            DelayedFiles files(depth, 0);
            std::set<std::uint64_t> places; // of chunks, in the order of their updates
            std::mutex mutex;
            std::size_t awaited = 0;
            std::size_t waits = 0;
            files.before_read_at = [&](std::uint64_t place) {
                {
                    std::lock_guard const lock(mutex);
                    places.insert(place);
                    if (awaited == 0 || place != *std::next(places.begin(), 2)) {
                        return;
                    }
                    ++waits;
                }
                std::size_t seen = 0;
                while ((seen = CountingBackend::updates) < awaited) {
                    CountingBackend::updates.wait(seen);
                }
            };
            auto offload = in_folder(folder, files);
            offload.depth = depth;
            (void)on_ranks<int, Ranks>(1, [&](auto& communicator) {
                InFile<N> engine(communicator, registration<bfloat16>(toy_specs()),
                                 {.offload = offload});
                for (std::uint64_t step = 0; step < 4; ++step) {
                    awaited = 0;
                    engine.for_each_owned_slice([](auto const&) {}); // waits until all is written
                    awaited = step == 0 ? 0 : CountingBackend::updates + 2;
                    (void)run_step(engine, 0, step).report();
                }
                return 0;
            });
            CHECK(waits == 3);
        }
    });
}

TEST_CASE("While a unit is in use the next one is gathered, and the one after it is read") {
    TemporaryFolder const folder;
    DelayedFiles files(1, 0);
    auto const copies = on_ranks<std::size_t, Loopback<GatedBackend>>(1, [&](auto& communicator) {
        auto offload = in_folder(folder, files);
        offload.chunk_bytes = 10'000;
        offload.depth = 4;
        ZeroStage<3, Parameters<bfloat16>, Loopback<GatedBackend>, OffloadAll<3>> engine(
            communicator,
            registration<bfloat16>(
                {{"a", 640, {0}}, {"b", 640, {1}}, {"c", 640, {2}}, {"d", 640, {3}}}),
            {.gather = {.prefetch_elements = 1280}, .offload = offload});
        (void)run_step(engine, 0, 0).report();           // the order of the units is known then
        engine.for_each_owned_slice([](auto const&) {}); // waits until all is written
        std::size_t const settled = files.reads;
        engine.begin_step();
        engine.begin_micro_step(MicroStep::last);
        while (files.reads < settled + 4) { // the states of the four chunks
            std::this_thread::yield();
        }
        std::atomic<std::size_t> seen{0};
        GatedBackend::before = [&] {
            if (++seen == 2) { // the gather of unit 1 ends when the read of unit 2 has begun
                while (files.reads < settled + 7) {
                    std::this_thread::yield();
                }
            }
        };
        {
            auto const first = engine.acquire(0);
            auto const second = engine.acquire(1);
            (void)engine.step_count(); // waits
        }
        engine.cancel_step(); // waits
        GatedBackend::before = nullptr;
        return seen.load();
    });
    CHECK(copies[0] >= 2);
    CHECK(files.reads >= 7);
}

TEST_CASE("A timeline shows the read of a chunk, the update of another and the write of a third "
          "under way at once") {
    using Recorded = Timed<Ranks>;
    using Stage = ZeroStage<2, Parameters<bfloat16>, Recorded, Both>;
    TemporaryFolder const folder;
    DelayedFiles files(1, 0);
    std::set<std::uint64_t> places; // of chunks, in the order of their updates
    std::mutex mutex;
    auto const meet_at = [&](std::uint64_t place, std::ptrdiff_t chunk) {
        {
            std::lock_guard const lock(mutex);
            places.insert(place);
            if (met == 3 || place != *std::next(places.begin(), chunk)) {
                return;
            }
        }
        meet();
    };
    files.before_read_at = [&](std::uint64_t place) { meet_at(place, 2); };
    files.before_write_at = [&](std::uint64_t place) { meet_at(place, 0); };
    auto offload = in_folder(folder, files);
    offload.depth = 3;
    (void)on_ranks<int, Ranks>(1, [&](Ranks& communicator) {
        Timeline timeline;
        std::size_t first = 0;
        {
            Recorded recorded(communicator, &timeline);
            Stage engine(recorded, registration<bfloat16>(toy_specs()), {.offload = offload});
            (void)run_step(engine, 0, 0).report();
            engine.for_each_owned_slice([](auto const&) {}); // waits until all is written
            first = timeline.size();
            CountingBackend::meeting = CountingBackend::updates + 2;
            met = 0;
            (void)run_step(engine, 0, 1).report();
        } // all queues have run everything
        CountingBackend::meeting = 0;
        std::vector<TimelineSpan const*> parties(3, nullptr);
        std::size_t updates = 0;
        for (std::size_t at = first; at < timeline.size(); ++at) {
            TimelineSpan const& span = timeline[at];
            std::string const what = span.what.data();
            if (what == "read of chunk" && span.index == 2) {
                parties[0] = &span;
            } else if (span.phase == TimelinePhase::update && ++updates == 2) {
                parties[1] = &span;
            } else if (what == "write of chunk" && span.index == 0) {
                parties[2] = &span;
            }
        }
        std::int64_t begin = 0;
        std::int64_t end = std::numeric_limits<std::int64_t>::max();
        for (TimelineSpan const* const span : parties) {
            REQUIRE(span != nullptr);
            begin = std::max<std::int64_t>(begin, span->begin);
            end = std::min<std::int64_t>(end, span->end);
        }
        CHECK(begin < end);
        return 0;
    });
}

TEST_CASE("With a tier whose reads, writes and updates take equally long an update takes a third, "
          "and with one slot no less than all of them") {
    in_every_stage([&]<int N>() {
        for (std::size_t depth = 1; depth <= 5; ++depth) {
            TemporaryFolder const folder;
            DelayedFiles files(depth, 0);
            auto offload = in_folder(folder, files);
            offload.depth = depth;
            using Clocked = ZeroStage<
                N, Parameters<bfloat16>, Loopback<ClockedBackend>,
                Offload<To<ClockedTier, BufferKind::optimizer_state, BufferKind::master_weights>>>;
            (void)on_ranks<int, typename Clocked::Communicator>(1, [&](auto& communicator) {
                Clocked engine(communicator, registration<bfloat16>(toy_specs()),
                               {.offload = offload});
                (void)run_step(engine, 0, 0).report();
                engine.for_each_owned_slice([](auto const&) {}); // waits until all is written
                ClockedBackend::now.clear();
                ClockedBackend::points.clear();
                ClockedBackend::updates = 0;
                (void)run_step(engine, 0, 1).report();
                return 0;
            });
            std::size_t const chunks = ClockedBackend::updates;
            std::size_t longest = 0;
            for (auto const& [queue, time] : ClockedBackend::now) {
                longest = std::max(longest, time);
            }
            INFO("stage " << N << ", depth " << depth << ", " << chunks << " chunks");
            REQUIRE(chunks >= 6);
            std::size_t const ideal = chunks + 2; // the first read and the last write are alone
            CHECK(longest
                  == (depth == 1   ? 3 * chunks
                      : depth == 2 ? chunks / 2 * 3 + (chunks % 2 == 0 ? 1 : 3)
                                   : ideal));
            CHECK((depth < 3 || 3 * chunks >= 2 * longest));
        }
    });
}

TEST_CASE("The ratio is the part of the bytes that a step moves, within one chunk") {
    in_every_stage([&]<int N>() {
        std::uint64_t all[2] = {0, 0};
        for (double const ratio : {1.0, 0.5, 0.25}) {
            TemporaryFolder const folder;
            DelayedFiles files(1, 0);
            files.block = 64;
            auto offload = in_folder(folder, files);
            offload.ratio = ratio;
            (void)on_ranks<int, Ranks>(1, [&](auto& communicator) {
                std::optional<InFile<N>> engine;
                engine.emplace(communicator, registration<bfloat16>(toy_specs()),
                               typename InFile<N>::Options{.offload = offload});
                std::uint64_t const read = files.bytes_read;
                std::uint64_t const written = files.bytes_written;
                (void)run_step(*engine, 0, 0).report();
                engine.reset(); // waits until all is written
                std::uint64_t const moved[2] = {files.bytes_read - read,
                                                files.bytes_written - written};
                for (int way = 0; way < 2; ++way) {
                    all[way] = ratio == 1 ? moved[way] : all[way];
                    auto const wanted = ratio * static_cast<double>(all[way]);
                    CHECK(std::abs(static_cast<double>(moved[way]) - wanted) <= 1500);
                }
                return 0;
            });
        }
        CHECK(all[0] > 6 * 1500);
        CHECK(all[1] == all[0]);
    });
}

TEST_CASE("A rank that fails while requests of another are under way ends both, and their files") {
    in_every_stage([&]<int N>() {
        for (std::uint64_t seed = 0; seed < 4; ++seed) {
            using Watched = ZeroStage<
                N, Parameters<bfloat16>, Loopback<CountingBackend>,
                Offload<To<WatchedTier, BufferKind::optimizer_state, BufferKind::master_weights>>>;
            TemporaryFolder const folder;
            DelayedFiles files[2]{DelayedFiles(seed), DelayedFiles(seed + 9)};
            std::atomic<bool> is_open{true};
            std::atomic<int> blocked{0};
            files[0].before_read_at = [&](std::uint64_t) {
                blocked += is_open ? 0 : 1;
                blocked.notify_all();
                is_open.wait(false);
            };
            WatchedTier::cancelled = 0;
            auto const outcomes = run_and_observe<Ranks>(2, [&](auto& communicator) {
                auto const rank = static_cast<std::uint64_t>(communicator.rank());
                Watched engine(communicator, registration<bfloat16>(toy_specs()),
                               {.offload = in_folder(folder, files[rank])});
                (void)run_step(engine, rank, 0).report();
                engine.for_each_owned_slice([](auto const&) {}); // waits until all is written
                if (rank == 0) {
                    is_open = false;
                }
                (void)run_step(engine, rank, 1);
                if (rank == 1) {
                    blocked.wait(0);
                    communicator.abort("rank 1: a cause of its own");
                    is_open = true;
                    is_open.notify_all();
                    throw std::runtime_error("a cause of its own");
                }
                (void)run_step(engine, rank, 2).report();
            });
            CHECK(outcomes.ranks[0].type == "Aborted");
            CHECK_THAT(outcomes.ranks[0].message, contains_text("a cause of its own"));
            CHECK(WatchedTier::cancelled == 1); // a rank that has not failed ends its update
            for (DelayedFiles const& of_rank : files) {
                CHECK(of_rank.closed == 1);
            }
        }
    });
}

TEST_CASE("A thousand steps allocate nothing, and neither grow the file nor open another") {
    in_every_stage([&]<int N>() {
        TemporaryFolder const folder;
        SeenFiles files;
        HostMemoryResource memory;
        (void)on_ranks<int, Ranks>(1, [&](auto& communicator) {
            AllInFile<N> engine(communicator, registration<bfloat16>(toy_specs()),
                                {.offload = in_folder(folder, files), .memory = &memory});
            auto const steps = [&](std::uint64_t begin, std::uint64_t end) {
                for (std::uint64_t step = begin; step < end; ++step) {
                    (void)run_step(engine, 0, step).report();
                }
                engine.for_each_owned_slice([](auto const&) {}); // waits until all is written
                return resources_now(files, memory);
            };
            Resources const before = steps(0, 2);
            CHECK(before.file_bytes > 0);
            Resources const after = steps(2, 1002);
            CHECK(after.memory == before.memory);
            CHECK(after.file_bytes == before.file_bytes);
            CHECK(after.descriptors == before.descriptors);
            // A file system adds blocks of its own when it writes what was reserved: here 64 KiB.
            CHECK(after.disk_blocks <= before.disk_blocks + 128);
            return 0;
        });
        CHECK(files.created == 1);
        CHECK(files.allocations == 1);
    });
}

TEST_CASE("Each byte of a small file that is flipped is found, and the chunk that it lies in is "
          "named") {
    std::vector<ParameterSpec> const specs{{"first", 5, {0}}, {"second", 30, {1}}};
    std::size_t found = 0;
    std::size_t padding = 0;
    for (std::size_t at = 0; at <= found + padding; ++at) {
        TemporaryFolder const folder;
        DelayedFiles files(at, 0);
        files.block = 64;
        std::size_t size = 0;
        auto const outcomes = run_and_observe<Ranks>(1, [&](auto& communicator) {
            typename InFile<1>::Options options;
            options.offload = in_folder(folder, files);
            options.bucketer.bucket_bytes = 64; // a chunk for each
            InFile<1> engine(communicator, registration<bfloat16>(specs), options);
            (void)run_step(engine, 0, 0).report();
            engine.for_each_owned_slice([](auto const&) {}); // waits until all is written
            auto& bytes = files.bytes(0);
            size = bytes.size();
            if (at < size) {
                bytes[at] ^= static_cast<std::byte>(1U << (at % 8));
            }
            (void)run_step(engine, 0, 1).report();
            engine.for_each_owned_slice([](auto const&) {});
        });
        INFO("byte " << at << ": " << outcomes.ranks[0].message);
        if (at == size) {
            break;
        }
        bool const is_found =
            outcomes.ranks[0].message.find("is not what was written") != std::string::npos;
        CHECK(is_found != (outcomes.ranks[0].type == "returned"));
        ++(is_found ? found : padding);
        if (is_found) {
            std::string const& message = outcomes.ranks[0].message;
            bool const is_second = message.find("'second'") != std::string::npos;
            CHECK((is_second || message.find("'first'") != std::string::npos));
            CHECK((at >= size / 2) == is_second);
        }
    }
    CHECK(found >= 35 * 12);
}

TEST_CASE("An alignment of more than a page of memory is kept by every request") {
    for (std::int64_t const block : {8192, 65536}) {
        in_every_stage([&]<int N>() {
            auto const expected = history<ZeroStage<N, Parameters<bfloat16>>>(2, {}, {});
            TemporaryFolder const folder;
            DelayedFiles files(1, 0);
            files.block = block;
            CHECK(
                (history<AllInFile<N>>(2, {.offload = in_folder(folder, files)}, {}) == expected));
            CHECK(files.is_aligned);
            CHECK(files.allocated == 2);
            CHECK(files.bytes(0).size() % static_cast<std::size_t>(block) == 0);
        });
    }
}

} // namespace zero::test::offload_pipeline_test
