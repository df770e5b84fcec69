#include "comm/report.hpp"
#include "scripted_nccl.hpp"
#include "support/catch.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

// The start from the environment variables of a launcher.

namespace zero::test::nccl_environment_test {

using cuda::LauncherError;
using cuda::NcclResult;

namespace {

using Lines = Script::Lines;
using Communicator = Script::Communicator;
using Variables = std::map<std::string, std::string>;

Variables torchrun() {
    return {{"RANK", "5"},
            {"WORLD_SIZE", "8"},
            {"LOCAL_RANK", "1"},
            {"MASTER_ADDR", "node-3"},
            {"MASTER_PORT", "29500"}};
}

/// Starts with one variable changed, or removed if `value` is null. Returns the message of the
/// error.
std::string failure(char const* name, char const* value) {
    Script script;
    script.system.variables = torchrun();
    script.system.variables.erase(name);
    if (value != nullptr) {
        script.system.variables[name] = value;
    }
    std::string const text = message_of<LauncherError>(
        [&] { (void)Communicator::from_environment(script.interfaces(), script.options); });
    CHECK(script.journal.take().empty()); // nothing was called and no variable changed
    return text;
}

/// Returns the values of NCCL_COMM_ID during and after the start of NCCL.
std::pair<std::string, std::string> address(Variables const& variables) {
    Script script;
    script.system.variables = variables;
    {
        auto const communicator =
            Communicator::from_environment(script.interfaces(), script.options);
        CHECK(communicator.rank() == 5);
        CHECK(communicator.size() == 8);
        CHECK(script.system.device == 1);
    }
    auto const lines = script.journal.take();
    REQUIRE(lines.size() == 7);
    CHECK(lines[0] == "set_device 1");
    CHECK(lines[2] == "get_unique_id");
    CHECK(lines[3] == "init_rank 5 of 8 id 42");
    CHECK(script.system.variables == variables);
    return {lines[1], lines[4]};
}

} // namespace

TEST_CASE("The variables of torchrun start a rank, and NCCL_COMM_ID is set during the start only") {
    CHECK(
        address(torchrun())
        == std::pair<std::string, std::string>("NCCL_COMM_ID=node-3:29501", "NCCL_COMM_ID=(none)"));
}

TEST_CASE("ZERO_NCCL_PORT replaces the port after the launcher's own") {
    auto variables = torchrun();
    variables["ZERO_NCCL_PORT"] = "4000";
    CHECK(address(variables).first == "NCCL_COMM_ID=node-3:4000");
    variables.erase("MASTER_PORT");
    CHECK(address(variables).first == "NCCL_COMM_ID=node-3:4000");
    variables["MASTER_PORT"] = "65534";
    variables.erase("ZERO_NCCL_PORT");
    CHECK(address(variables).first == "NCCL_COMM_ID=node-3:65535");
}

TEST_CASE("An IPv6 address is put in brackets") {
    auto variables = torchrun();
    variables["MASTER_ADDR"] = "fe80::1";
    CHECK(address(variables).first == "NCCL_COMM_ID=[fe80::1]:29501");
    variables["MASTER_ADDR"] = "[fe80::1]";
    CHECK(address(variables).first == "NCCL_COMM_ID=[fe80::1]:29501");
}

TEST_CASE("A previous value of NCCL_COMM_ID is restored") {
    auto variables = torchrun();
    variables["NCCL_COMM_ID"] = "elsewhere:1";
    CHECK(address(variables)
          == std::pair<std::string, std::string>("NCCL_COMM_ID=node-3:29501",
                                                 "NCCL_COMM_ID=elsewhere:1"));
}

TEST_CASE("NCCL_COMM_ID is also restored after a failed start") {
    for (char const* const function : {"get_unique_id", "init_rank", "get_async_error"}) {
        Script script;
        script.system.variables = torchrun();
        script.nccl.results[function] = NcclResult::system_error;
        std::string const text = message_of<CommunicatorError>(
            [&] { (void)Communicator::from_environment(script.interfaces(), script.options); });
        CHECK((function == std::string("get_async_error") || contains(text, "node-3:29501")));
        auto const lines = script.journal.take();
        CHECK(std::count(lines.begin(), lines.end(), "NCCL_COMM_ID=node-3:29501") == 1);
        CHECK(script.system.variables == torchrun());
    }
}

TEST_CASE("The error names every missing variable and its valid values") {
    for (char const* const name :
         {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}) {
        std::string const text = failure(name, nullptr);
        CHECK_THAT(text, contains_text(std::string("the environment variable ") + name
                                       + " is missing; it must be "));
        CHECK_THAT(text, contains_text("torchrun sets"));
    }
    CHECK_THAT(failure("MASTER_ADDR", nullptr),
               contains_text("machine of rank 0; this is rank 5 of 8: torchrun set RANK = 5"));
    CHECK_THAT(failure("MASTER_PORT", nullptr),
               contains_text("unless ZERO_NCCL_PORT gives the port"));
}

TEST_CASE("The error names every malformed variable and its value") {
    std::vector<std::pair<char const*, std::vector<char const*>>> const bad{
        {"RANK", {"", "8", "-1", "+1", " 1", "1 ", "one", "1.0", "0x1", "99999999999999999999"}},
        {"WORLD_SIZE", {"", "0", "-8", "8,", "4294967297"}},
        {"LOCAL_RANK", {"", "8", "-1", "a"}},
        {"MASTER_ADDR", {"", "node 3", "tcp://node-3", "node\n"}},
        {"MASTER_PORT", {"", "0", "65535", "http"}},
        {"ZERO_NCCL_PORT", {"", "0", "65536", "-1"}},
    };
    for (auto const& [name, values] : bad) {
        for (char const* const value : values) {
            CHECK_THAT(failure(name, value),
                       contains_text(std::string("the environment variable ") + name + " is '"
                                     + value + "'; it must be "));
        }
    }
}

TEST_CASE("A local rank without a device is refused before NCCL is called") {
    Script script;
    script.system.variables = torchrun();
    script.system.devices = 1;
    CHECK_THAT(message_of<LauncherError>([&] {
                   (void)Communicator::from_environment(script.interfaces(), script.options);
               }),
               contains_text("the rank on this machine is 1 (rank 5 of 8: torchrun set RANK = 5, "
                             "WORLD_SIZE = 8 and LOCAL_RANK = 1), but this process sees 1 CUDA "
                             "devices"));
    script.system.results["device_count"] = 35;
    CHECK_THAT(message_of<CommunicatorError>([&] {
                   (void)Communicator::from_environment(script.interfaces(), script.options);
               }),
               contains_text("cudaGetDeviceCount failed"));
    CHECK(script.journal.take().empty());
}

} // namespace zero::test::nccl_environment_test
