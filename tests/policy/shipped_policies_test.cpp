#include "support/shipped_policies.hpp"

#include "support/catch.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>

// The lists of shipped policies match the headers, and a policy does not pay for what it does not
// use.

namespace zero::test::shipped_policies_test {

namespace {

template <class... P>
std::set<std::string> names_in(std::tuple<P...> const*) {
    std::set<std::string> names;
    (names.insert(type_name<P>().substr(0, type_name<P>().find('<'))), ...);
    return names;
}

/// Returns the classes in the headers whose first member is `policy_category`, and those that
/// derive from the base of decorators, which has it.
std::set<std::string> names_in_headers() {
    std::set<std::string> names;
    std::regex const policy(R"((?:struct|class) (\w+) )"
                            R"((?:(?:: [\w:]+ )?\{\n(?:public:\n)?    using policy_category = |)"
                            R"(:\s[^{;]*(?:CommunicatorDecorator|RoleDecorator)<))");
    for (auto const& entry :
         std::filesystem::recursive_directory_iterator(ZERO_SOURCE_DIR "/include/zero")) {
        if (entry.is_regular_file()) {
            std::ifstream file(entry.path());
            std::string const text{std::istreambuf_iterator<char>(file), {}};
            for (std::sregex_iterator match(text.begin(), text.end(), policy);
                 match != std::sregex_iterator(); ++match) {
                names.insert((*match)[1].str());
            }
        }
    }
    return names;
}

template <class... P>
constexpr bool are_empty(std::tuple<P...> const*) {
    return (std::is_empty_v<P> && ...);
}
static_assert(are_empty(static_cast<ShippedValuePolicies const*>(nullptr)),
              "a policy that ships is a type: what it keeps is in Options and State");

template <class P>
constexpr bool has_sound_options() {
    if constexpr (requires { typename P::Options; }) { // not every policy has any
        return std::is_default_constructible_v<typename P::Options>
               && std::is_aggregate_v<typename P::Options>;
    }
    return true;
}
template <class... P>
constexpr bool have_options(std::tuple<P...> const*) {
    return (has_sound_options<P>() && ...);
}
static_assert(have_options(static_cast<ShippedValuePolicies const*>(nullptr)),
              "the options of a policy are an aggregate with defaults");

/// Four empty options types. No two are the same type, because these could not share an address.
template <int>
struct None {
    struct Options {};
};

struct BareConfig {
    using Backend = HostBackend;
    using Parameter = float;
    using PartitionerOptions = None<5>::Options;
    using BucketerOptions = None<0>::Options;
    using LossScaler = None<1>;
    using Optimizer = None<2>;
    using MasterWeights = None<3>;
    using Offload = None<4>;
    using Feedback = NoFeedback;
};

/// The members of StageOptions that belong to no policy. All reduction policies have the same
/// options.
struct EngineOptions {
    std::optional<float> gradient_clipping;
    NormLimit skip_above_norm;
    NonFinite non_finite;
    std::size_t skip_limit;
    zero::detail::SharedFunction<void, std::string const&> on_skip;
    ReportOptions report;
    UnusedParameters unused_parameters;
    Storage storage;
    std::span<float> adopted_block;
    bool asynchronous;
    CurrentMemoryOf current_memory;
    std::vector<std::string> unit_names;
    char const* backward_call;
    std::size_t extra_leases;
    void (*rebuild_buckets)(void*);
    std::size_t leases_until_rebuild;
    GatherOptions gather;
    std::size_t update_tile_elements;
    bool poison;
    std::vector<ParameterGroup<None<2>>> groups;
    GradientReductionOptions reduction;
    HostBackend::Queue compute_queue;
    std::optional<HostBackend::Queue> communication_queue;
    MemoryResource* memory;
};

} // namespace

TEST_CASE("The lists of shipped policies match the headers") {
    auto listed =
        names_in(static_cast<joined<ShippedValuePolicies, ShippedCommunicators> const*>(nullptr));
    CHECK(listed.erase("DealtGroupPartitioner") == 1); // derives from WholeGroupPartitioner
    CHECK(listed.erase("PerTensorPartitioner") == 1);  // derives from ContiguousPartitioner
    listed.insert(
        "BasicNcclCommunicator"); // not in the umbrella; tests/cuda/nccl_conformance_test.cpp runs
                                  // the conformance suite on it
    listed.insert("Timed");       // not in the umbrella; tests/comm/decorators_conformance_test.cpp
    listed.insert("AnyCommunicator");  // the same
    listed.insert("HostCommunicator"); // of zero::mpi and zero::torch; tests/mpi and tests/torch
                                       // run the suite
    listed.insert("Groups");           // not in the umbrella; tests/comm/groups_test.cpp
    listed.insert("RoleDecorator");    // the base of every Groups
    CHECK(names_in_headers() == listed);
}

TEST_CASE("Policies without options take no space in the options of a stage") {
    STATIC_REQUIRE(sizeof(StageOptions<BareConfig>) == sizeof(EngineOptions));
    // Policies with options take their size. The defaults are size-capped buckets, no scaler, AdamW
    // and no seed.
    constexpr std::size_t options = sizeof(SizeCappedBucketerOptions) + sizeof(AdamWOptions);
    STATIC_REQUIRE(sizeof(ZeroStage<2>::Options) == sizeof(EngineOptions) + options);
    STATIC_REQUIRE(sizeof(ZeroStage<3>::Options) == sizeof(EngineOptions) + sizeof(AdamWOptions));
    STATIC_REQUIRE(sizeof(ZeroStage<3, StochasticRounding, Parameters<bfloat16>>::Options)
                   == sizeof(EngineOptions) + sizeof(AdamWOptions) + sizeof(std::uint64_t));
}

TEST_CASE("Stage number, partitioner and bucketer add nothing to the size of an engine, and a loss "
          "scaler adds its options and state") {
    STATIC_REQUIRE(sizeof(ZeroStage<0>) == sizeof(ZeroStage<2>));
    STATIC_REQUIRE(sizeof(ZeroStage<2, RoundRobinPartitioner>) == sizeof(ZeroStage<2>));
    STATIC_REQUIRE(sizeof(ZeroStage<2, UnitBucketer>)
                   == sizeof(ZeroStage<2>) - sizeof(SizeCappedBucketerOptions));
    STATIC_REQUIRE(sizeof(ZeroStage<2, NoLossScaler>) == sizeof(ZeroStage<2>));
    STATIC_REQUIRE(sizeof(ZeroStage<2, StaticLossScaler>)
                   <= sizeof(ZeroStage<2>) + alignof(std::max_align_t));
}

TEST_CASE("Data that a policy does not use takes no memory of the backend") {
    auto const bytes = []<class Stage>(BufferKind kind) {
        std::size_t found = 0;
        run_ranks(1, [&](LoopbackCommunicator& communicator) {
            Stage const engine(communicator, std::vector<typename Stage::Registration>{
                                                 {.name = "w", .elements = 500}});
            found = engine.memory_plan()[kind].bytes();
        });
        return found;
    };
    CHECK(bytes.operator()<ZeroStage<2>>(BufferKind::master_weights) == 0);
    CHECK(bytes.operator()<ZeroStage<2>>(BufferKind::wire) == 0);
    CHECK(bytes.operator()<ZeroStage<2>>(BufferKind::parameter_leases) == 0);
}

} // namespace zero::test::shipped_policies_test
