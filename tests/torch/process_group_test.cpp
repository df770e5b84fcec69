#include "gloo_fixture.hpp"

#include "comm/conformance.hpp"
#include "comm/report.hpp"
#include "stage/tree_model.hpp"

#include <zero/core/error.hpp>
#include <zero/host/inline_queue.hpp>

#include <array>
#include <csignal>
#include <string>
#include <vector>

namespace zero::test::process_group_test {

namespace {

using torch::ProcessGroupCommunicator;
using torch::ProcessGroupOptions;

/// A backend without operations.
class BareBackend : public c10d::Backend {
public:
    BareBackend() : c10d::Backend(0, 2) {}
    const std::string getBackendName() const override { return "bare"; } // NOLINT: as LibTorch's
};

} // namespace

TEST_CASE("A process group sums float in rank order") {
    check_sums_of<GlooFixture, float>();
}

TEST_CASE("A process group sums bfloat16 in rank order and rounds once") {
    check_sums_of<GlooFixture, bfloat16>();
}

TEST_CASE("A process group sums float16 in rank order and rounds once") {
    check_sums_of<GlooFixture, float16>();
}

TEST_CASE("A process group gathers every type") {
    check_gathers_of<GlooFixture, float, bfloat16, float16, std::int64_t, std::uint64_t,
                     unsigned char>();
}

TEST_CASE("A process group exchanges every type") {
    check_exchanges_of<GlooFixture, float, bfloat16, float16, std::int64_t, std::uint64_t,
                       unsigned char>();
}

TEST_CASE("A process group broadcasts every type") {
    check_broadcasts_of<GlooFixture, float, bfloat16, float16, std::int64_t, unsigned char>();
}

TEST_CASE("A process group reduces integers exactly, and sums single numbers") {
    check_integer_reductions<GlooFixture>();
    check_number_sums<GlooFixture>();
}

TEST_CASE("A process group moves what is larger than its buffers in several rounds") {
    on_all_ranks<GlooFixture>([](auto& caller) {
        std::vector<std::size_t> cuts{0};
        for (std::size_t rank = 0; rank < static_cast<std::size_t>(caller.world()); ++rank) {
            cuts.push_back(cuts.back() + (rank % 3 == 1 ? 1 : 3000 + 7 * rank));
        }
        check_sums<float>(caller, cuts, false);
        check_sums<bfloat16>(caller, cuts, true);
        check_gather<float>(caller, cuts, false);
        check_exchange<float>(caller, cuts);
        check_exchange<unsigned char>(caller, cuts);
        check_broadcast<float>(caller, 5000, caller.world() - 1);
        check_integers(caller, 3000, 0);
    });
}

TEST_CASE("Micro-batches that process groups add in a tree have the bits of one rank") {
    tree::Job const job{.micro_batches = 4, .steps = 2};
    using Types = Parameters<bfloat16>;
    auto const expected = tree::train<ZeroStage<2, Types, TreeReduction<>>>(1, {}, job);
    for (int const world : {2, 4}) {
        INFO("W = " << world);
        std::vector<std::vector<tree::Seen>> ranks(static_cast<std::size_t>(world));
        GlooFixture::run(world, [&](ProcessGroupCommunicator& communicator) {
            using Stage = ZeroStage<3, Types, TreeReduction<>, ProcessGroupCommunicator>;
            ranks[static_cast<std::size_t>(communicator.rank())] =
                tree::train_on<Stage>(communicator, {}, job, tree::Delivery::leases);
        });
        CHECK((tree::joined(ranks) == expected));
    }
}

TEST_CASE("A process group releases all ranks when one rank aborts") {
    check_abort<GlooFixture>();
}

TEST_CASE("Options that differ between ranks are refused on every rank") {
    Report report;
    GlooFixture::run_groups(2, [&](int rank, auto const& group, auto const& store) {
        ProcessGroupOptions options = GlooFixture::options(store);
        options.compares_calls = rank == 0;
        std::string const text = message_of<LayoutMismatch>(
            [&] { ProcessGroupCommunicator const communicator(group, options); });
        report.expect(
            contains(text, "scratch_bytes, compares_calls and shares_memory must be equal")
                && contains(text, "rank " + std::to_string(rank) + " has"),
            text);
    });
    report.check();
}

TEST_CASE("Options out of range are refused by name") {
    auto const bare = c10::make_intrusive<BareBackend>();
    auto const refusal = [&](ProcessGroupOptions const& options) {
        return message_of<InvalidArgument>(
            [&] { ProcessGroupCommunicator const communicator(bare, options); });
    };
    ProcessGroupOptions options;
    options.time_out = std::chrono::milliseconds(0);
    CHECK(contains(refusal(options), "torch::ProcessGroupOptions::time_out is 0 ms"));
    options = {};
    options.scratch_bytes = (std::size_t{1} << 30U) + 1;
    CHECK(contains(refusal(options), "scratch_bytes is 1073741825; it must be at most 1073741824"));
    CHECK(contains(
        message_of<InvalidArgument>([] { ProcessGroupCommunicator const communicator(nullptr); }),
        "got no backend"));
}

namespace {

using Handler = void (*)(int);

/// Returns the handler of SIGPIPE after a communicator of one rank was made.
Handler after_construction(Handler before, bool ignores_broken_pipes) {
    Handler const own = std::signal(SIGPIPE, before);
    Handler after = nullptr;
    GlooFixture::run_groups(1, [&](int, auto const& group, auto const& store) {
        torch::ProcessGroupOptions options = GlooFixture::options(store);
        options.ignores_broken_pipes = ignores_broken_pipes;
        torch::ProcessGroupCommunicator const communicator(group, options);
        after = std::signal(SIGPIPE, SIG_DFL);
    });
    (void)std::signal(SIGPIPE, own);
    return after;
}

} // namespace

TEST_CASE("A write to a rank that has ended is an error and not the end of the process") {
    Handler const own = [](int) {};
    CHECK(after_construction(SIG_DFL, true) == SIG_IGN);
    CHECK(after_construction(SIG_IGN, true) == SIG_IGN);
    CHECK(after_construction(own, true) == own);
    CHECK(after_construction(SIG_DFL, false) == SIG_DFL);
}

TEST_CASE("A backend that lacks an operation is named") {
    auto const bare = c10::make_intrusive<BareBackend>();
    CHECK(contains(
        message_of<CommunicatorError>([&] { ProcessGroupCommunicator const communicator(bare); }),
        "the backend 'bare' failed: Backend bare does not support allreduce"));
}

TEST_CASE("Without the comparison of calls the sums and the traffic are the same") {
    Report report;
    GlooFixture::run_groups(3, [&](int, auto const& group, auto const& store) {
        ProcessGroupOptions options = GlooFixture::options(store);
        options.compares_calls = false;
        ProcessGroupCommunicator communicator(group, options);
        host::InlineQueue queue;
        std::array<std::size_t, 4> const cuts{0, 2, 3, 7};
        std::array<float, 7> values{};
        values.fill(static_cast<float>(communicator.rank() + 1));
        communicator.all_reduce(static_cast<float const*>(values.data()), values.data(), cuts,
                                &queue);
        for (float const value : values) {
            report.expect(value == 6.0F, "sum " + std::to_string(value));
        }
        auto const own = cuts[static_cast<std::size_t>(communicator.rank()) + 1]
                         - cuts[static_cast<std::size_t>(communicator.rank())];
        auto const& traffic = communicator.traffic()[CollectiveKind::all_reduce];
        report.expect(traffic.elements == 2 * own + (7 - own),
                      "received " + std::to_string(traffic.elements));
    });
    report.check();
}

} // namespace zero::test::process_group_test
