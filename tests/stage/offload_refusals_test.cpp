// States in a file are refused, or described, before anything is allocated.

#include "support/caller_memory.hpp"
#include "support/catch.hpp"
#include "support/limited_memory.hpp"
#include "support/outcome.hpp"

#include "offload_model.hpp"

#include <zero/stage/describe.hpp>
#include <zero/zero.hpp>

#include <cstddef>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace zero::test::offload_refusals_test {

TEST_CASE("Each kind of memory but states of a rank is refused by Offload") {
    [&]<std::size_t... Kind>(std::index_sequence<Kind...>) {
        std::vector<std::string> accepted;
        auto const add = [&]<BufferKind kind>() {
            if (zero::detail::offloads_states_only<Offload<To<FileTier, kind>>>()) {
                accepted.emplace_back(name_of(kind));
            }
        };
        (add.template operator()<static_cast<BufferKind>(Kind)>(), ...);
        CHECK(accepted
              == std::vector<std::string>{"parameters", "master weights", "optimizer state"});
    }(std::make_index_sequence<buffer_kinds>());
}

TEST_CASE("Options of states in a file are refused before anything is allocated") {
    TemporaryFolder const folder;
    auto const refusal = [&](auto const& change) {
        LimitedMemory memory(1U << 24U);
        auto const outcomes = run_and_observe(1, [&](LoopbackCommunicator& communicator) {
            InFile<2>::Options options{.offload = in_folder(folder), .memory = &memory};
            change(options);
            InFile<2> const engine(communicator, registration<bfloat16>(toy_specs()), options);
        });
        CHECK(memory.most() == 0);
        CHECK(outcomes.ranks[0].type == "InvalidArgument");
        return outcomes.ranks[0].message;
    };
    CHECK_THAT(refusal([](auto& options) { options.offload.path = "/absent"; }),
               contains_text("offload.path is '/absent', which is not a folder"));
    CHECK_THAT(refusal([](auto& options) { options.offload.ratio = 1.5; }),
               contains_text("offload.ratio is 1.5"));
    CHECK_THAT(refusal([](auto& options) { options.offload.ratio = -0.25; }),
               contains_text("offload.ratio is -0.25"));
    CHECK_THAT(refusal([](auto& options) {
                   options.offload.ratio = std::numeric_limits<double>::quiet_NaN();
               }),
               contains_text("offload.ratio is "));
    CHECK_THAT(refusal([](auto& options) { options.offload.depth = 0; }),
               contains_text("offload.depth is 0"));
    CHECK_THAT(refusal([](auto& options) { options.offload.chunk_bytes = 700; }),
               contains_text("offload.chunk_bytes is 700"));
    CHECK_THAT(refusal([](auto& options) { options.offload.resident_bytes = 1; }),
               contains_text("offload.resident_bytes would be ignored"));
    CHECK_THAT(refusal([](auto& options) { options.update_tile_elements = 64; }),
               contains_text("update_tile_elements is set, but Offload updates chunk by chunk"));
}

TEST_CASE("Parameters of the caller are not offloaded: stage 3, which alone offloads parameters, "
          "refuses them before it makes a file") {
    for (Storage const storage : {Storage::scattered, Storage::adopted}) {
        TemporaryFolder const folder;
        DelayedFiles files(1);
        LimitedMemory memory(1U << 24U);
        auto parameters = registration<bfloat16>(toy_specs());
        CallerMemory<bfloat16, bfloat16> callers(parameters);
        auto const outcomes = run_and_observe(1, [&](LoopbackCommunicator& communicator) {
            InFile<3>::Options options{
                .storage = storage, .offload = in_folder(folder, &files), .memory = &memory};
            if (storage == Storage::adopted) {
                options.adopted_block = callers.block;
            }
            InFile<3> const engine(communicator, parameters, options);
        });
        CHECK(outcomes.ranks[0].type == "InvalidArgument");
        CHECK_THAT(outcomes.ranks[0].message,
                   contains_text("stage 3 frees parameters between uses, which it cannot do with "
                                 "the caller's memory; use Storage::owned"));
        CHECK(files.created == 0);
        CHECK(memory.most() == 0);
    }
}

TEST_CASE("An offload is part of the description, and its options are equal on all ranks") {
    TemporaryFolder const folder;
    CHECK_THAT(describe<InFile<2>>(),
               contains_text(", optimizer state and master weights in FileTier, reduced by"));
    auto const outcomes = run_and_observe(2, [&](LoopbackCommunicator& communicator) {
        auto offload = in_folder(folder);
        offload.ratio = communicator.rank() == 0 ? 1 : 0.5;
        InFile<1> const engine(communicator, registration<bfloat16>(toy_specs()),
                               {.offload = offload});
    });
    for (auto const& outcome : outcomes.ranks) {
        CHECK(outcome.type == "LayoutMismatch");
        CHECK_THAT(outcome.message, contains_text("'offload'"));
    }
}

} // namespace zero::test::offload_refusals_test
