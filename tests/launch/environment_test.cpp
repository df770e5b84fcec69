#include "support/catch.hpp"

#include <zero/launch/environment.hpp>
#include <zero/launch/launcher_error.hpp>

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

namespace zero::test::environment_test {

namespace {

using Variables = std::map<std::string, std::string>;

launch::Environment read(Variables const& variables) {
    Variables copy = variables;
    return launch::environment(
        [](void* context, char const* name) -> char const* {
            auto const& map = *static_cast<Variables*>(context);
            auto const found = map.find(name);
            return found == map.end() ? nullptr : found->second.c_str();
        },
        &copy);
}

std::string failure(Variables const& variables) {
    try {
        (void)read(variables);
    } catch (launch::LauncherError const& error) {
        return error.what();
    }
    return "nothing was thrown";
}

Variables joined(Variables a, Variables const& b) {
    a.insert(b.begin(), b.end());
    return a;
}

Variables named(std::string const& rank, std::string const& world, std::string const& local_rank) {
    return {{rank, "5"}, {world, "8"}, {local_rank, "1"}};
}

struct Launcher {
    std::string name;
    std::string rank;
    std::string world;
    std::string local_rank;

    [[nodiscard]] Variables variables() const { return named(rank, world, local_rank); }
};

std::vector<Launcher> launchers() {
    return {
        {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"},
        {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
        {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
        {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"}};
}

} // namespace

TEST_CASE("The variables of every launcher give rank, world and rank on the machine") {
    for (auto const& launcher : launchers()) {
        INFO(launcher.name);
        launch::Environment const environment = read(launcher.variables());
        CHECK(environment.rank == 5);
        CHECK(environment.world == 8);
        CHECK(environment.local_rank == 1);
        CHECK(environment.launcher == launcher.name);
    }
}

TEST_CASE("A missing variable of a launcher is named, with all that were looked for") {
    for (auto const& launcher : launchers()) {
        for (std::string const& name : {launcher.rank, launcher.world, launcher.local_rank}) {
            Variables variables = launcher.variables();
            variables.erase(name);
            std::string const text = failure(variables);
            INFO(text);
            CHECK_THAT(text, contains_text("the environment variable " + name + " is missing"));
            for (auto const& other : launchers()) {
                CHECK_THAT(text, contains_text(other.rank));
                CHECK_THAT(text, contains_text(other.world));
                CHECK_THAT(text, contains_text(other.local_rank));
            }
        }
    }
    CHECK_THAT(failure({}), contains_text("RANK is missing; it must be the rank of this process, "
                                          "and no other launcher was found"));
}

TEST_CASE("A value that is not a number in its range is named with the range") {
    for (auto const& launcher : launchers()) {
        for (std::string const value : {"", "8", "-1", "+1", " 1", "1 ", "one", "1.0", "0x1"}) {
            for (std::string const& name : {launcher.rank, launcher.local_rank}) {
                Variables variables = launcher.variables();
                variables[name] = value;
                CHECK_THAT(failure(variables), contains_text(name + " is '" + value + '\''));
                CHECK_THAT(failure(variables),
                           contains_text("from 0 to " + launcher.world + " - 1 = 7"));
            }
        }
        for (std::string const value : {"", "0", "-8", "8,", "4294967297"}) {
            Variables variables = launcher.variables();
            variables[launcher.world] = value;
            CHECK_THAT(failure(variables),
                       contains_text(launcher.world + " is '" + value
                                     + "'; it must be the number of ranks, at least 1"));
        }
    }
}

TEST_CASE("Launchers that agree are accepted, and those that contradict are refused") {
    Variables both = joined(launchers()[0].variables(), launchers()[1].variables());
    CHECK(read(both).launcher == "torchrun");
    both["OMPI_COMM_WORLD_RANK"] = "4";
    CHECK_THAT(failure(both),
               contains_text("OMPI_COMM_WORLD_RANK is '4'; it must be equal to RANK = 5 while both "
                             "are set"));
    both["OMPI_COMM_WORLD_RANK"] = "5";
    both["OMPI_COMM_WORLD_SIZE"] = "9";
    CHECK_THAT(failure(both), contains_text("OMPI_COMM_WORLD_SIZE is '9'; it must be equal to "
                                            "WORLD_SIZE = 8"));
    Variables pmix = launchers()[1].variables();
    pmix["PMIX_RANK"] = "5";
    CHECK(read(pmix).rank == 5);
    pmix["PMIX_RANK"] = "2";
    CHECK_THAT(failure(pmix), contains_text("PMIX_RANK is '2'; it must be equal to "
                                            "OMPI_COMM_WORLD_RANK = 5"));
}

TEST_CASE("The variables of a Slurm job do not contradict those of a launcher inside it") {
    Variables const job{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "64"}, {"SLURM_LOCALID", "0"}};
    for (std::size_t index = 0; index < 3; ++index) {
        launch::Environment const environment = read(joined(launchers()[index].variables(), job));
        CHECK(environment.launcher == launchers()[index].name);
        CHECK(environment.rank == 5);
        CHECK(environment.world == 8);
    }
    CHECK(read(job).world == 64);
}

TEST_CASE("The variables of the process are read by default") {
    for (char const* const name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"}) {
        ::unsetenv(name);
    }
    ::setenv("RANK", "2", 1);
    ::setenv("WORLD_SIZE", "3", 1);
    ::setenv("LOCAL_RANK", "0", 1);
    CHECK(launch::environment().rank == 2);
    CHECK(launch::environment().world == 3);
    ::unsetenv("RANK");
    ::unsetenv("WORLD_SIZE");
    ::unsetenv("LOCAL_RANK");
}

} // namespace zero::test::environment_test
