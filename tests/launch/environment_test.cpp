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
        {"Flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID"},
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
    for (std::size_t index = 0; index < 4; ++index) {
        launch::Environment const environment = read(joined(launchers()[index].variables(), job));
        CHECK(environment.launcher == launchers()[index].name);
        CHECK(environment.rank == 5);
        CHECK(environment.world == 8);
    }
}

// What each launcher sets, in the ways in which it is started.

namespace {

struct Launch {
    std::string what;
    Variables variables;
    int rank;
    int world;
    int local_rank;
    std::string launcher;
    std::string reason;
};

/// A task of srun.
Variables slurm_task(std::string const& rank, std::string const& world, std::string const& local) {
    return {{"SLURM_JOB_ID", "7"},  {"SLURM_PROCID", rank},  {"SLURM_STEP_NUM_TASKS", world},
            {"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", world}, {"SLURM_LOCALID", local}};
}

Variables torchrun() {
    return {{"RANK", "5"},
            {"WORLD_SIZE", "8"},
            {"LOCAL_RANK", "1"},
            {"LOCAL_WORLD_SIZE", "4"},
            {"TORCHELASTIC_RUN_ID", "none"}};
}

Variables open_mpi() {
    return {{"OMPI_COMM_WORLD_RANK", "5"},
            {"OMPI_COMM_WORLD_SIZE", "8"},
            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
            {"PMIX_RANK", "5"}};
}

std::vector<Launch> launches() {
    Variables const pmi{{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}};
    Variables const first_pmi{{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}};
    Variables const flux{
        {"FLUX_TASK_RANK", "5"}, {"FLUX_JOB_SIZE", "8"}, {"FLUX_TASK_LOCAL_ID", "1"}};
    Variables const node = slurm_task("0", "2", "0");
    Variables const batch{{"SLURM_JOB_ID", "7"},
                          {"SLURM_PROCID", "0"},
                          {"SLURM_NTASKS", "8"},
                          {"SLURM_LOCALID", "0"}};
    std::string const alone = "rank 0 of 1: this process was started in a job of Slurm without "
                              "srun, because SLURM_STEP_ID is not set";
    std::string const of_torchrun =
        "rank 5 of 8: torchrun set RANK = 5, WORLD_SIZE = 8 and LOCAL_RANK = 1";
    std::string const of_mpirun =
        "rank 5 of 8: mpirun set OMPI_COMM_WORLD_RANK = 5, OMPI_COMM_WORLD_SIZE = 8 and "
        "OMPI_COMM_WORLD_LOCAL_RANK = 1";
    std::string const of_srun =
        "rank 5 of 8: srun set SLURM_PROCID = 5, SLURM_STEP_NUM_TASKS = 8 and SLURM_LOCALID = 1";
    std::string const of_flux =
        "rank 5 of 8: flux run set FLUX_TASK_RANK = 5, FLUX_JOB_SIZE = 8 and FLUX_TASK_LOCAL_ID = "
        "1";
    return {
        {"torchrun", torchrun(), 5, 8, 1, "torchrun", of_torchrun},
        {"mpirun of Open MPI", open_mpi(), 5, 8, 1, "Open MPI", of_mpirun},
        {"mpiexec of MPICH and Intel", joined(pmi, {{"MPI_LOCALRANKID", "1"}}), 5, 8, 1, "PMI",
         "rank 5 of 8: mpiexec set PMI_RANK = 5, PMI_SIZE = 8 and MPI_LOCALRANKID = 1"},
        {"mpiexec of Cray", joined(pmi, {{"PMI_LOCAL_RANK", "1"}}), 5, 8, 1, "PMI",
         "rank 5 of 8: mpiexec set PMI_RANK = 5, PMI_SIZE = 8 and PMI_LOCAL_RANK = 1"},
        {"mpiexec of Cray in a job of Slurm", joined(joined(pmi, {{"PMI_LOCAL_RANK", "1"}}), node),
         5, 8, 1, "PMI",
         "rank 5 of 8: mpiexec set PMI_RANK = 5, PMI_SIZE = 8 and PMI_LOCAL_RANK = 1"},
        {"srun", slurm_task("5", "8", "1"), 5, 8, 1, "Slurm", of_srun},
        {"srun --mpi=pmi2", joined(slurm_task("5", "8", "1"), pmi), 5, 8, 1, "Slurm", of_srun},
        {"srun --mpi=pmi2, without the variables of the step",
         joined({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_LOCALID", "0"}}, first_pmi),
         0, 2, 0, "Slurm",
         "rank 0 of 2: srun set SLURM_PROCID = 0, SLURM_NTASKS = 2 and SLURM_LOCALID = 0"},
        {"srun --mpi=pmix", joined(slurm_task("5", "8", "1"), {{"PMIX_RANK", "5"}}), 5, 8, 1,
         "Slurm", of_srun},
        {"srun -n 8 --preserve-env in a job of 64 tasks",
         joined({{"SLURM_NTASKS", "64"}}, slurm_task("5", "8", "1")), 5, 8, 1, "Slurm", of_srun},
        {"flux run", joined(flux, pmi), 5, 8, 1, "Flux", of_flux},
        {"flux run -o pmi=off", flux, 5, 8, 1, "Flux", of_flux},
        {"flux run in a job of Slurm", joined(joined(flux, pmi), node), 5, 8, 1, "Flux", of_flux},
        {"a batch script of sbatch -n 8", batch, 0, 1, 0, "Slurm",
         alone + "; SLURM_NTASKS = 8 is what srun would start"},
        {"a batch script without -n",
         {{"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}},
         0,
         1,
         0,
         "Slurm",
         alone},
        {"the shell of salloc -n 8",
         {{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "8"}},
         0,
         1,
         0,
         "Slurm",
         alone + "; SLURM_NTASKS = 8 is what srun would start"},
        {"the shell of salloc -n 8, where that is a step",
         joined({{"SLURM_STEP_NUM_TASKS", "1"}}, batch), 0, 1, 0, "Slurm",
         "rank 0 of 1: srun set SLURM_PROCID = 0, SLURM_STEP_NUM_TASKS = 1 and SLURM_LOCALID = 0"},
        {"torchrun in a batch script", joined(torchrun(), batch), 5, 8, 1, "torchrun", of_torchrun},
        {"srun --mpi=pmix torchrun", joined(joined(torchrun(), node), {{"PMIX_RANK", "0"}}), 5, 8,
         1, "torchrun",
         of_torchrun + "; PMIX_RANK = 0 is that of the process that torchrun was started by"},
        {"srun --mpi=pmix torchrun, before it set a run id",
         joined(joined(named("RANK", "WORLD_SIZE", "LOCAL_RANK"), node), {{"PMIX_RANK", "0"}}), 5,
         8, 1, "torchrun",
         of_torchrun + "; PMIX_RANK = 0 is that of the process that torchrun was started by"},
        {"srun --mpi=pmi2 torchrun", joined(joined(torchrun(), node), first_pmi), 5, 8, 1,
         "torchrun", of_torchrun},
        {"flux run torchrun",
         joined(joined(torchrun(), first_pmi),
                {{"FLUX_TASK_RANK", "0"}, {"FLUX_JOB_SIZE", "2"}, {"FLUX_TASK_LOCAL_ID", "0"}}),
         5, 8, 1, "torchrun", of_torchrun},
        {"mpiexec of Cray with torchrun",
         joined(joined(torchrun(), first_pmi), {{"PMI_LOCAL_RANK", "0"}}), 5, 8, 1, "torchrun",
         of_torchrun},
        {"mpirun with torchrun",
         joined(torchrun(), {{"OMPI_COMM_WORLD_RANK", "1"},
                             {"OMPI_COMM_WORLD_SIZE", "2"},
                             {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                             {"PMIX_RANK", "1"}}),
         5, 8, 1, "torchrun",
         of_torchrun + "; PMIX_RANK = 1 is that of the process that torchrun was started by"},
        {"mpirun whose daemons srun --mpi=pmi2 starts", joined(joined(open_mpi(), node), first_pmi),
         5, 8, 1, "Open MPI", of_mpirun},
    };
}

} // namespace

TEST_CASE("Each way to start gives rank, world and rank on the machine, and says from what") {
    for (Launch const& launch : launches()) {
        INFO(launch.what);
        launch::Environment found;
        CHECK_NOTHROW(found = read(launch.variables));
        CHECK(found.rank == launch.rank);
        CHECK(found.world == launch.world);
        CHECK(found.local_rank == launch.local_rank);
        CHECK(found.launcher == launch.launcher);
        CHECK(found.reason == launch.reason);
    }
}

TEST_CASE("Variables of PMI and PMIx that are those of no job must fit") {
    // Neither a rank on the machine nor a job that has the same ranks.
    CHECK_THAT(failure(joined({{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}}, slurm_task("0", "2", "0"))),
               contains_text("MPI_LOCALRANKID is missing"));
    CHECK_THAT(failure(joined({{"PMI_RANK", "5"}, {"PMI_SIZE", "9"}}, slurm_task("5", "8", "1"))),
               contains_text("MPI_LOCALRANKID is missing"));
    // PMIx alone, and another number than that of the job.
    Variables plain = named("RANK", "WORLD_SIZE", "LOCAL_RANK");
    plain["PMIX_RANK"] = "0";
    CHECK_THAT(failure(plain), contains_text("PMIX_RANK is '0'; it must be equal to RANK = 5"));
    CHECK_THAT(failure(joined(plain, slurm_task("1", "2", "0"))),
               contains_text("PMIX_RANK is '0'; it must be equal to RANK = 5"));
    // srun, with a rank of PMIx that is not that of its task.
    CHECK_THAT(failure(joined({{"PMIX_RANK", "4"}}, slurm_task("5", "8", "1"))),
               contains_text("PMIX_RANK is '4'; it must be equal to SLURM_PROCID = 5"));
}

TEST_CASE("The variables of the process are read by default") {
    for (char const* const name :
         {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE", "PMIX_RANK"}) {
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
