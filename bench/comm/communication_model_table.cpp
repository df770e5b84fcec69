// Compares predictions of CommunicationModel with measurements: collectives between the threads of
// one process, W = 2 and 4. Latency and bandwidth are fitted to two sizes; the others, and the
// collectives of whole steps, are predicted. Prints a table of docs/data/benchmarks.txt.
//
// A time is the shortest of several repetitions, because the model describes a machine that does
// nothing else. The spread is how much longer their median is.
//
// A second table has whole steps on 2 x 2 ranks with throttled links (tests/support/throttled.hpp),
// 20 MB/s inside a host and 2.5 between two ranks, in which a collective sleeps as long as its
// bytes take: the time by the clock beside the prediction, and both as gains over the flat run.

#include "stage/throttled_model.hpp"

#include <zero/comm/loopback.hpp>
#include <zero/layout/communication_model.hpp>
#include <zero/layout/contiguous_partitioner.hpp>
#include <zero/layout/gather_options.hpp>
#include <zero/layout/make_layout.hpp>
#include <zero/layout/size_capped_bucketer.hpp>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace zero;

constexpr std::size_t largest_elements = std::size_t{16} << 20U; // 64 MiB
constexpr int repetitions = 101;

struct Measured {
    double seconds; ///< the shortest time
    double spread;  ///< how much longer the median is, relative to the shortest
};

/// W communicators and the memory of each: whole buckets and shards. Each call uses the memory
/// after that of the previous call, so that the caches hold none of it, as in a step.
class Group {
public:
    explicit Group(std::size_t world)
        : _ranks(LoopbackCommunicator::make_group(static_cast<int>(world))) {
        for (std::size_t rank = 0; rank < world; ++rank) {
            _memory.push_back({std::vector<float>(largest_elements, 0.25F),
                               std::vector<float>(largest_elements / world, 0.25F)});
        }
    }

    [[nodiscard]] std::size_t world() const { return _ranks.size(); }

    void reduce_scatter(std::size_t rank, std::size_t elements) {
        Memory& memory = _memory[rank];
        std::size_t const at = memory.next(elements);
        _ranks[rank].reduce_scatter<float>(
            memory.whole.data() + at, memory.shard.data() + at / world(), cuts(elements), _queue);
    }

    void all_gather(std::size_t rank, std::size_t elements) {
        Memory& memory = _memory[rank];
        std::size_t const at = memory.next(elements);
        _ranks[rank].all_gather<float>(memory.shard.data() + at / world(), memory.whole.data() + at,
                                       cuts(elements), _queue);
    }

    /// Prepares collectives of `elements`. Must not be called while ranks run.
    void prepare(std::size_t elements) {
        for (std::vector<std::size_t> const& cuts : _cuts) {
            if (cuts.back() == elements) {
                return;
            }
        }
        _cuts.emplace_back();
        for (std::size_t rank = 0; rank <= world(); ++rank) {
            _cuts.back().push_back(elements / world() * rank);
        }
    }

    /// Times `run(rank)` on one thread per rank.
    template <class Run>
    [[nodiscard]] Measured time(std::size_t batch, Run const& run) {
        std::barrier meeting(static_cast<std::ptrdiff_t>(world()));
        std::vector<double> seconds;
        auto const repeat = [&](std::size_t rank) {
            for (int repetition = 0; repetition < repetitions; ++repetition) {
                meeting.arrive_and_wait();
                auto const start = std::chrono::steady_clock::now();
                for (std::size_t call = 0; call < batch; ++call) {
                    run(rank);
                }
                meeting.arrive_and_wait();
                if (rank == 0) {
                    std::chrono::duration<double> const passed =
                        std::chrono::steady_clock::now() - start;
                    seconds.push_back(passed.count() / static_cast<double>(batch));
                }
            }
        };
        std::vector<std::thread> threads;
        for (std::size_t rank = 0; rank < world(); ++rank) {
            threads.emplace_back(repeat, rank);
        }
        for (std::thread& thread : threads) {
            thread.join();
        }
        std::sort(seconds.begin(), seconds.end());
        return {seconds.front(), seconds[seconds.size() / 2] / seconds.front() - 1};
    }

private:
    struct Memory {
        std::vector<float> whole, shard;
        std::size_t used = 0;

        /// Returns the first of the next elements.
        std::size_t next(std::size_t elements) {
            std::size_t const at = used + elements > largest_elements ? 0 : used;
            used = at + elements;
            return at;
        }
    };

    [[nodiscard]] std::vector<std::size_t> const& cuts(std::size_t elements) const {
        return *std::find_if(_cuts.begin(), _cuts.end(),
                             [&](auto const& cuts) { return cuts.back() == elements; });
    }

    std::vector<LoopbackCommunicator> _ranks;
    std::vector<Memory> _memory;
    std::vector<std::vector<std::size_t>> _cuts;
    HostBackend::Queue _queue = HostBackend::default_compute_queue();
};

void print(std::size_t world, char const* what, std::string const& size, Measured measured,
           double predicted, bool is_fitted) {
    std::printf("| %zu | %s | %s | %.0f | %.0f | %.2f | %.0f %%%s |\n", world, what, size.c_str(),
                1e6 * measured.seconds, 1e6 * predicted, predicted / measured.seconds,
                100 * measured.spread, is_fitted ? ", fitted" : "");
}

/// Measures a collective of several sizes and prints it with the level fitted to two of them.
template <class Collective>
NetworkLevel compare(Group& group, char const* what, Collective const& collective) {
    constexpr std::size_t kib[] = {64, 256, 1024, 4096, 16384};
    constexpr std::size_t shorter = 1;
    constexpr std::size_t longer = 3;
    std::vector<Measured> measured;
    std::vector<CommunicationTerm> terms;
    for (std::size_t const size : kib) {
        std::size_t const elements = size * 1024 / sizeof(float);
        group.prepare(elements);
        measured.push_back(group.time(std::max<std::size_t>(1, 4096 / size),
                                      [&](std::size_t rank) { collective(rank, elements); }));
        terms.push_back({1, size * 1024 / group.world() * (group.world() - 1)});
    }
    auto const sample = [&](std::size_t index) {
        return CollectiveSample{static_cast<double>(terms[index].bytes), measured[index].seconds};
    };
    NetworkLevel const level = fit_network_level(group.world(), sample(shorter), sample(longer));
    CommunicationModel const model(level);
    for (std::size_t index = 0; index < measured.size(); ++index) {
        print(group.world(), what, std::to_string(kib[index]) + " KiB", measured[index],
              model.collective_seconds(group.world(), terms[index]),
              index == shorter || index == longer);
    }
    std::fprintf(stderr, "W = %zu, %s: latency %.2f us, %.2f GB/s\n", group.world(), what,
                 1e6 * level.latency_seconds, 1e-9 * level.bytes_per_second);
    return level;
}

/// Runs the collectives of a step of four layers of 1 MiB and prints them with the prediction.
void compare_step(Group& group, int stage, NetworkLevel scatter, NetworkLevel gather) {
    constexpr std::size_t elements = std::size_t{256} << 10U;
    std::vector<ParameterSpec> model;
    std::vector<std::size_t> acquired;
    for (std::size_t layer = 0; layer < 4; ++layer) {
        model.push_back({.name = std::to_string(layer), .elements = elements, .units = {layer}});
        acquired.insert(acquired.end(), {layer, layer});
    }
    auto const layout =
        make_layout<ContiguousPartitioner, UnitBucketer>(model, {group.world(), 4, true});
    auto const step =
        count_step_communication(layout, 0, stage, default_schedule(stage), 1, acquired);
    group.prepare(elements);
    Measured const measured = group.time(1, [&](std::size_t rank) {
        for (std::uint64_t call = 0; call < step.gathers.calls; ++call) {
            group.all_gather(rank, elements);
        }
        for (std::uint64_t call = 0; call < step.reductions.calls; ++call) {
            group.reduce_scatter(rank, elements);
        }
        for (std::uint64_t call = 0; call < step.publishes.calls; ++call) {
            group.all_gather(rank, elements);
        }
    });
    CommunicationSeconds const gathered = CommunicationModel(gather).predict(group.world(), step);
    CommunicationSeconds const reduced = CommunicationModel(scatter).predict(group.world(), step);
    print(group.world(), ("step of stage " + std::to_string(stage)).c_str(), "4 x 1024 KiB",
          measured, gathered.gathers + reduced.reductions + gathered.publishes, false);
}

/// Prints steps on throttled links.
void compare_throttled() {
    using namespace test::throttled_model;
    Hosts const hosts{.links = {.inside = {0, 20e6}, .between = {0, 2.5e6}, .sleeps = true},
                      .elements = std::size_t{1} << 20U,
                      .steps = 3};
    std::printf("\n| stage | step on 2 x 2 ranks | measured ms | predicted ms | gain | predicted "
                "gain | gain / predicted |\n|---|---|---:|---:|---:|---:|---:|\n");
    Seconds flat;
    auto const row = [&](int stage, char const* what, Seconds const& step) {
        double const gain = flat.real / step.real;
        double const predicted = flat.predicted / step.predicted;
        std::printf("| %d | %s | %.0f | %.0f | %.2f | %.2f | %.2f |\n", stage, what,
                    1e3 * step.real, 1e3 * step.predicted, gain, predicted, gain / predicted);
    };
    flat = measure<3, Flat>(hosts);
    row(3, "flat", flat);
    row(3, "Hybrid", measure<3, InHosts>(hosts));
    row(3, "Secondary", measure<3, Copies>(hosts));
    row(3, "Wire<Int8Blocks>", measure<3, Flat, Wire<Int8Blocks>>(hosts, 66));
    row(3, "Wire<Int4Blocks>", measure<3, Flat, Wire<Int4Blocks>>(hosts, 34));
    row(3, "Secondary, Wire<Int8Blocks>", measure<3, Copies, Wire<Int8Blocks>>(hosts, 66));
    using Both = Wire<Int8Blocks, Int4Blocks>;
    row(3, "Wire<Int8Blocks, Int4Blocks>", measure<3, Flat, Both>(hosts, 66));
    flat = measure<2, Flat>(hosts);
    row(2, "flat", flat);
    row(2, "Hybrid", measure<2, InHosts>(hosts));
    row(2, "Wire<Int8Blocks>", measure<2, Flat, Wire<Int8Blocks>>(hosts, 66));
    row(2, "Wire<Int8Blocks, Int4Blocks>", measure<2, Flat, Both>(hosts, 66));
}

} // namespace

int main() {
    std::printf("| W | collective | bucket | measured us | predicted us | predicted / measured | "
                "spread |\n|---|---|---:|---:|---:|---:|---:|\n");
    for (std::size_t const world : {std::size_t{2}, std::size_t{4}}) {
        Group group(world);
        NetworkLevel const scatter =
            compare(group, "reduce-scatter", [&](std::size_t rank, std::size_t elements) {
                group.reduce_scatter(rank, elements);
            });
        NetworkLevel const gather =
            compare(group, "all-gather", [&](std::size_t rank, std::size_t elements) {
                group.all_gather(rank, elements);
            });
        compare_step(group, 1, scatter, gather);
        compare_step(group, 3, scatter, gather);
    }
    compare_throttled();
    return 0;
}
