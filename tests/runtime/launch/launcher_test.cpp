#include "runtime/launch/launcher.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include <coshard/runtime/error.h>

namespace coshard {
namespace {

using Variables = std::map<std::string, std::string>;

Environment with(const Variables& variables) {
  return [variables](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

Variables operator+(Variables one, const Variables& other) {
  one.insert(other.begin(), other.end());
  return one;
}

std::string problem(const Variables& variables) {
  try {
    (void)launched(with(variables));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    return error.what();
  }
  return "";
}

// As "mpirun openmpi 1/4, 1/2 here".
std::string place(const Variables& variables) {
  const auto job = launched(with(variables));
  if (!job) return "alone";
  std::string text = str_cat(job->launcher, " ", job->mpi.empty() ? "without MPI" : job->mpi, " ",
                             job->process, "/", job->processes);
  if (job->local_process) text += str_cat(", ", *job->local_process);
  if (job->local_processes) text += str_cat("/", *job->local_processes);
  return text;
}

const Variables kOpenMpi{{"OMPI_COMM_WORLD_SIZE", "4"},
                         {"OMPI_COMM_WORLD_RANK", "3"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                         {"PMIX_RANK", "3"}};
const Variables kHydra{
    {"PMI_SIZE", "3"}, {"PMI_RANK", "1"}, {"MPI_LOCALNRANKS", "3"}, {"MPI_LOCALRANKID", "1"}};
const Variables kStep{{"SLURM_STEP_NUM_TASKS", "4"},
                      {"SLURM_STEP_NUM_NODES", "2"},
                      {"SLURM_PROCID", "3"},
                      {"SLURM_LOCALID", "1"},
                      {"SLURM_NTASKS", "4"}};
const Variables kTorchrun{{"RANK", "3"},
                          {"WORLD_SIZE", "4"},
                          {"LOCAL_RANK", "1"},
                          {"LOCAL_WORLD_SIZE", "2"},
                          {"MASTER_ADDR", "node1"},
                          {"MASTER_PORT", "29500"}};

TEST(Launcher, ByItselfOrAsTheOnlyProcessOfAJobIsNone) {
  EXPECT_EQ(place({}), "alone");
  EXPECT_EQ(place({{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}}), "alone");
  EXPECT_EQ(place({{"PMI_SIZE", "1"}}), "alone");
  EXPECT_EQ(place({{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}}), "alone");
  EXPECT_EQ(place({{"RANK", "0"}, {"WORLD_SIZE", "1"}}), "alone");
}

TEST(Launcher, OfEachMpiTellsRankAndSize) {
  EXPECT_EQ(place(kOpenMpi), "mpirun openmpi 3/4, 1/2");
  EXPECT_EQ(place(kHydra), "mpirun mpich 1/3, 1/3");
  EXPECT_EQ(place({{"PMI_SIZE", "3"}, {"PMI_RANK", "0"}}), "mpirun mpich 0/3");
  EXPECT_EQ(launched(with(kOpenMpi))->said, "OMPI_COMM_WORLD_SIZE=4 and OMPI_COMM_WORLD_RANK=3");
}

TEST(Launcher, SrunServesOpenMpiByPmixAndMpichByPmi2) {
  EXPECT_EQ(place(kStep + Variables{{"PMIX_RANK", "3"}, {"SLURM_MPI_TYPE", "pmix"}}),
            "srun openmpi 3/4, 1");
  EXPECT_EQ(
      place(kStep + Variables{{"PMI_SIZE", "4"}, {"PMI_RANK", "3"}, {"SLURM_MPI_TYPE", "pmi2"}}),
      "srun mpich 3/4");
}

TEST(Launcher, SrunWithoutMpiSupportIsToldHowToStart) {
  const auto job = launched(with(kStep));
  ASSERT_TRUE(job);
  EXPECT_EQ(job->mpi, "");
  try {
    fail_without_mpi(*job);
  } catch (const Error& error) {
    EXPECT_STREQ(
        error.what(),
        "SLURM_STEP_NUM_TASKS=4 and SLURM_PROCID=3, but srun was started without MPI support: "
        "start the program with srun --mpi=pmix (Open MPI) or srun --mpi=pmi2 (MPICH)");
  }
}

TEST(Launcher, AnAllocationOfSlurmIsNone) {
  const Variables salloc{{"SLURM_NTASKS", "4"}, {"SLURM_NPROCS", "4"}, {"SLURM_JOBID", "7"}};
  EXPECT_EQ(place(salloc), "alone");
  const Variables batch = salloc + Variables{{"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}};
  EXPECT_EQ(place(batch), "alone");
  EXPECT_EQ(place(batch + kOpenMpi), "mpirun openmpi 3/4, 1/2");
}

// As they are in the processes of an mpirun in an allocation.
TEST(Launcher, AStepOfOneTaskPerNodeMayBeTheDaemonsOfMpirun) {
  const Variables one{{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}};
  EXPECT_EQ(place(one + kHydra), "mpirun mpich 1/3, 1/3");
  const Variables two{{"SLURM_STEP_NUM_TASKS", "2"},
                      {"SLURM_STEP_NUM_NODES", "2"},
                      {"SLURM_PROCID", "1"},
                      {"PMIX_RANK", "1"}};
  EXPECT_EQ(place(two + kOpenMpi), "mpirun openmpi 3/4, 1/2");
  EXPECT_EQ(place(two + kTorchrun), "torchrun without MPI 3/4, 1/2");
}

TEST(Launcher, TorchrunTellsWhereToMeet) {
  EXPECT_EQ(place(kTorchrun), "torchrun without MPI 3/4, 1/2");
  const auto job = launched(with(kTorchrun));
  EXPECT_EQ(job->master_addr, "node1");
  EXPECT_EQ(job->master_port, "29500");
  try {
    fail_without_mpi(*job);
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "WORLD_SIZE=4 and RANK=3, but several processes need MPI: start the program with "
                 "mpirun -n 4 instead of torchrun");
  }
}

TEST(Launcher, ThatAgreesWithAnotherIsNoContradiction) {
  EXPECT_EQ(place(kOpenMpi + kTorchrun), "mpirun openmpi 3/4, 1/2");
  EXPECT_EQ(place(kStep + kTorchrun), "srun without MPI 3/4, 1");
  EXPECT_EQ(place(kStep + kTorchrun + Variables{{"PMIX_RANK", "3"}}), "srun openmpi 3/4, 1");
  EXPECT_EQ(place(kOpenMpi + Variables{{"MASTER_ADDR", "node1"}}), "mpirun openmpi 3/4, 1/2");
  EXPECT_EQ(place(kOpenMpi + Variables{{"WORLD_SIZE", "4"}}), "mpirun openmpi 3/4, 1/2");
  EXPECT_EQ(place({{"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}}), "alone");
}

TEST(Launcher, ThatContradictsAnotherIsAnErrorWithBoth) {
  EXPECT_EQ(
      problem(kOpenMpi + kHydra),
      "OMPI_COMM_WORLD_SIZE=4 and OMPI_COMM_WORLD_RANK=3 contradict PMI_SIZE=3 and "
      "PMI_RANK=1: start the program with one launcher, in an environment without the other's "
      "variables");
  const Variables rank_2 = Variables{{"RANK", "2"}} + kTorchrun;
  EXPECT_EQ(problem(kOpenMpi + rank_2),
            "OMPI_COMM_WORLD_SIZE=4 and OMPI_COMM_WORLD_RANK=3 contradict WORLD_SIZE=4 and RANK=2: "
            "start the program with one launcher, in an environment without the other's variables");
  EXPECT_NE(problem(kHydra + kStep).find("PMI_RANK=1 contradict SLURM_STEP_NUM_TASKS=4 and SLURM"),
            std::string::npos);
  EXPECT_NE(problem(Variables{{"OMPI_COMM_WORLD_SIZE", "1"}} + kTorchrun).find("contradict"),
            std::string::npos);
}

TEST(Launcher, ThatSaysNotAllIsToldWhatIsMissing) {
  EXPECT_EQ(problem({{"WORLD_SIZE", "2"}}),
            "WORLD_SIZE=2 without RANK, LOCAL_RANK, MASTER_ADDR, MASTER_PORT: set all variables "
            "that torchrun sets, or none of them to run as one process");
  EXPECT_EQ(problem({{"RANK", "1"}, {"MASTER_ADDR", "node1"}}),
            "RANK=1 without WORLD_SIZE, LOCAL_RANK, MASTER_PORT: set all variables that torchrun "
            "sets, or none of them to run as one process");
  EXPECT_EQ(
      problem({{"PMI_SIZE", "2"}}),
      "PMI_SIZE=2 without PMI_RANK: set all variables that mpirun sets, or none of them to run "
      "as one process");
  EXPECT_EQ(problem({{"OMPI_COMM_WORLD_RANK", "0"}}),
            "OMPI_COMM_WORLD_RANK=0 without OMPI_COMM_WORLD_SIZE: set all variables that mpirun "
            "sets, or none of them to run as one process");
  EXPECT_EQ(problem({{"SLURM_STEP_NUM_TASKS", "2"}}),
            "SLURM_STEP_NUM_TASKS=2 without SLURM_PROCID: set all variables that srun sets, or "
            "none of them to run as one process");
}

TEST(Launcher, WhatIsNoNumberOrOutOfRangeIsQuoted) {
  for (const char* text : {"", "x", "0", "-2", "3x", "99999999999"})
    EXPECT_EQ(problem({{"PMI_SIZE", text}}),
              str_cat("PMI_SIZE=", text, " is not a number of processes"));
  for (const char* text : {"", "x", "4", "-1"})
    EXPECT_EQ(problem({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", text}}),
              str_cat("OMPI_COMM_WORLD_RANK=", text, " is not a rank of OMPI_COMM_WORLD_SIZE=4"));
  EXPECT_EQ(problem(Variables{{"LOCAL_RANK", "4"}} + kTorchrun),
            "LOCAL_RANK=4 is not a local rank");
  EXPECT_EQ(problem(Variables{{"LOCAL_WORLD_SIZE", "5"}} + kTorchrun),
            "LOCAL_WORLD_SIZE=5 is not a number of local processes");
}

TEST(Launcher, OfThisProcessIsReadFromItsEnvironment) { EXPECT_FALSE(launched()); }

}  // namespace
}  // namespace coshard
