#include "support/catch.hpp"

#include "oracle/driver.hpp"

#include <zero/comm/groups.hpp>
#include <zero/stage/wire.hpp>

// The oracle adds in two levels: inside a group, then between groups. What travels in codes is
// encoded and decoded on each level, and the sum of groups once more.

using namespace zero::test::oracle;

namespace {

using Hosts = zero::Groups<zero::LoopbackCommunicator, zero::Hybrid>;
using HostsInFloat = zero::Groups<zero::LoopbackCommunicator, zero::HybridInFloat>;

template <class Between>
using SumsAs = zero::Wire<zero::Plain, zero::Level<zero::Plain, Between>>;
using AllInCodes = zero::Wire<zero::Int8Blocks, zero::Level<zero::Int4Blocks, zero::Int8Blocks>,
                              zero::ErrorFeedback<float>>;

template <Code between, bool has_all = false>
bool in_codes(Configuration& c) {
    c.between = between;
    if (has_all) {
        c.weights = Code::int8;
        c.code = Code::int4;
        c.errors = Errors::floats;
        c.beta = 0.25F * static_cast<float>(keyed(c.seed, c.index, 79) % 4);
        c.reset_every = 1 + keyed(c.seed, c.index, 80) % 5;
        c.predivide.reset();
    }
    return c.memory != Memory::adopted || c.has_aligned_block;
}

} // namespace

TEST_CASE("Float parameters in groups: random configurations give the bits of the oracle in "
          "stages 1 to 3",
          "[oracle]") {
    run_row<0, Hosts>();
}
TEST_CASE("Bfloat16 parameters in groups: random configurations give the bits of the oracle in "
          "stages 1 to 3",
          "[oracle]") {
    run_row<3, Hosts>();
}
TEST_CASE("Bfloat16 parameters in groups that send floats between them: random configurations "
          "give the bits of the oracle in stages 1 to 3",
          "[oracle]") {
    run_row<5, HostsInFloat>();
}
TEST_CASE("Float16 parameters in groups, round-robin, with a dynamic loss scale: random "
          "configurations give the bits of the oracle in stages 1 to 3",
          "[oracle]") {
    run_row<10, Hosts>();
}
TEST_CASE(
    "Bfloat16 and float parameters in groups, with a split master: random configurations give "
    "the bits of the oracle in stages 1 to 3",
    "[oracle]") {
    run_row<25, Hosts>();
}
TEST_CASE("Bfloat16 sums of groups that travel in 8 bits between them: random configurations give "
          "the bits of the oracle in stages 1 to 3",
          "[oracle]") {
    run_row<6, Hosts, SumsAs<zero::Int8Blocks>>(100, in_codes<Code::int8>);
}
TEST_CASE("Sums of two types that travel in 4 bits between groups: random configurations give the "
          "bits of the oracle in stages 1 to 3",
          "[oracle]") {
    run_row<25, Hosts, SumsAs<zero::Int4Blocks>>(100, in_codes<Code::int4>);
}
TEST_CASE(
    "Weights in 8 bits, and gradients in 4 bits inside groups, with errors of floats, and in 8 "
    "bits between them: random configurations give the bits of the oracle in stages 1 to 3",
    "[oracle]") {
    run_row<10, Hosts, AllInCodes>(100, in_codes<Code::int8, true>);
}

TEST_CASE("The oracle finds another code between groups", "[oracle][mutants]") {
    run_row<6, Hosts, SumsAs<zero::Int8Blocks>>(
        30, [](Configuration& c) { return in_codes<Code::int8>(c) && c.shard != c.world; },
        [](Configuration& c) { c.between = Code::int4; });
}
