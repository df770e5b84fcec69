#include "gloo_fixture.hpp"

#include "comm/conformance.hpp"
#include "comm/in_shared.hpp"
#include "comm/report.hpp"
#include "support/ranks.hpp"
#include "support/toy_model.hpp"

#include <zero/zero.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <string>
#include <vector>

// Ranks of one host that read one another's memory in place, over a process group.

namespace zero::test::process_group_memory_test {

namespace {

using torch::ProcessGroupCommunicator;
using torch::ProcessGroupOptions;

/// Passes transfers of data on to another backend, and counts what all ranks send.
class CountingBackend : public c10d::Backend {
public:
    explicit CountingBackend(c10::intrusive_ptr<c10d::Backend> inner)
        : c10d::Backend(inner->getRank(), inner->getSize()), _inner(std::move(inner)) {}

    inline static std::atomic<std::size_t> bytes = 0;

    const std::string getBackendName() const override { return "counting"; } // NOLINT: LibTorch's
    c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& to, at::Tensor& from,
                                                 std::vector<std::int64_t>& received,
                                                 std::vector<std::int64_t>& sent,
                                                 c10d::AllToAllOptions const& options) override {
        bytes += from.nbytes();
        return _inner->alltoall_base(to, from, received, sent, options);
    }
    c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                             c10d::BroadcastOptions const& options) override {
        bytes += tensors[0].nbytes();
        return _inner->broadcast(tensors, options);
    }
    c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                             c10d::AllreduceOptions const& options) override {
        bytes += tensors[0].nbytes();
        return _inner->allreduce(tensors, options);
    }
    c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& to,
                                             std::vector<at::Tensor>& from,
                                             c10d::AllgatherOptions const& options) override {
        bytes += from[0].nbytes();
        return _inner->allgather(to, from, options);
    }

private:
    c10::intrusive_ptr<c10d::Backend> _inner;
};

template <bool is_mixed>
struct Fixture {
    static void meet(int world) { GlooFixture::meet(world); }

    template <class Body>
    static void run(int world, Body const& body) {
        GlooFixture::run_groups(world, [&](int, auto const& group, auto const& store) {
            ProcessGroupCommunicator inner(group, GlooFixture::options(store));
            run_rank(inner, [&](ProcessGroupCommunicator& ready) {
                InShared<ProcessGroupCommunicator, is_mixed> communicator(ready);
                body(communicator);
            });
        });
    }
};

using Shared = Fixture<false>;
using Mixed = Fixture<true>;

} // namespace

TEST_CASE("Ranks of a process group that read one another's memory sum in rank order") {
    check_sums_of<Shared, float>();
    check_sums_of<Shared, bfloat16>();
}

TEST_CASE("Ranks of a process group that read one another's memory gather, exchange and broadcast "
          "every type") {
    check_gathers_of<Shared, float, bfloat16, std::int64_t, unsigned char>();
    check_exchanges_of<Shared, float, std::int64_t, unsigned char>();
    check_broadcasts_of<Shared, float, std::int64_t, unsigned char>();
    check_integer_reductions<Shared>();
    check_number_sums<Shared>();
}

TEST_CASE("A process group sends messages whenever one of its ranks has other memory") {
    check_sums_of<Mixed, float>();
    check_gathers_of<Mixed, float, unsigned char>();
    check_exchanges_of<Mixed, float>();
    check_broadcasts_of<Mixed, float, unsigned char>();
}

TEST_CASE("Ranks of a process group that read one another's memory are released when one aborts") {
    check_abort<Shared>();
}

TEST_CASE("Engines over a process group on one host send no bucket, and have the bits of threads") {
    for (int const world : {1, 2, 3, 5}) {
        auto const expected = on_ranks<ParametersOfStages>(
            world, [](LoopbackCommunicator& ranks) { return train_every_stage(ranks); });
        std::array<std::size_t, 2> sent{};
        for (bool const shares : {false, true}) {
            std::vector<ParametersOfStages> found(static_cast<std::size_t>(world));
            Report report;
            std::size_t const before = CountingBackend::bytes;
            GlooFixture::run_groups(world, [&](int rank, auto const& group, auto const& store) {
                ProcessGroupOptions options = GlooFixture::options(store);
                options.shares_memory = shares;
                options.compares_calls = false; // by messages
                ProcessGroupCommunicator ranks(c10::make_intrusive<CountingBackend>(group),
                                               options);
                std::string const reason =
                    world == 1 ? "it is the only rank"
                    : shares   ? ""
                               : "torch::ProcessGroupOptions::shares_memory is false";
                report.expect(ranks.reason_for_messages() == reason, ranks.reason_for_messages());
                found[static_cast<std::size_t>(rank)] = train_every_stage(ranks);
            });
            report.check();
            sent[shares ? 1 : 0] = CountingBackend::bytes - before;
            CHECK((found == expected));
        }
        INFO("W = " << world << ": " << sent[0] << " and " << sent[1] << " bytes");
        CHECK((world == 1 || sent[1] < sent[0] / 5)); // what ranks compare, and decide, is sent
    }
}

TEST_CASE("A collective in memory and one in messages are told apart") {
    Report report;
    GlooFixture::run_groups(3, [&](int rank, auto const& group, auto const& store) {
        ProcessGroupCommunicator communicator(group, GlooFixture::options(store));
        host::InlineQueue queue;
        Buffer<float> memory(communicator.shared_memory(), 6, BufferKind::gradients);
        std::array<std::size_t, 4> const cuts{0, 2, 4, 6};
        std::int64_t value = 1;
        std::string const text = message_of<CollectiveMismatch>([&] {
            if (rank == 1) {
                communicator.all_reduce_integers(&value, 1, IntegerReduction::sum, &queue);
            } else {
                communicator.all_gather(memory.data() + cuts[static_cast<std::size_t>(rank)],
                                        memory.data(), cuts, &queue);
            }
        });
        report.expect(contains(text, "rank 0 called all-gather of 6 float32")
                          && contains(text, "rank 1 called all-reduce of integers of 1 int64"),
                      text);
    });
    report.check();
}

TEST_CASE("A rank that has left a process group does not take what its peers still read") {
    Report report;
    GlooFixture::run_groups(3, [&](int rank, auto const& group, auto const& store) {
        for (int turn = 0; turn < 30; ++turn) { // each one races
            ProcessGroupCommunicator communicator(group, GlooFixture::options(store));
            host::InlineQueue queue;
            Buffer<std::int64_t> memory(communicator.shared_memory(), 3, BufferKind::gradients);
            std::array<std::size_t, 4> const cuts{0, 1, 2, 3};
            auto const own = static_cast<std::size_t>(rank);
            memory.data()[own] = rank + turn;
            communicator.all_gather(memory.data() + own, memory.data(), cuts, &queue);
            report.expect(memory.data()[0] == turn && memory.data()[2] == turn + 2,
                          "turn " + std::to_string(turn));
        }
    });
    report.check();
}

} // namespace zero::test::process_group_memory_test
