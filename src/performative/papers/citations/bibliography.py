"""Bibliographic data of the works behind the parts. Fields that are not known for certain are left out."""

from types import MappingProxyType

ICML = "International Conference on Machine Learning"
AISTATS = "International Conference on Artificial Intelligence and Statistics"
ICLR = "International Conference on Learning Representations"
NEURIPS = "Advances in Neural Information Processing Systems"


def _work(kind: str, author: str, title: str, year: int, **where: str | int) -> tuple[str, dict[str, str]]:
    """(kind, fields); titles are kept as they are written, capital letters included."""
    fields = {"author": author, "title": "{" + title + "}", **where, "year": year}
    return kind, {name: str(value) for name, value in fields.items()}


def _meeting(author: str, title: str, year: int, booktitle: str, **more: str | int) -> tuple[str, dict[str, str]]:
    series = {"series": "Proceedings of Machine Learning Research"} if booktitle in (ICML, AISTATS) else {}
    return _work("inproceedings", author, title, year, booktitle=booktitle, **series, **more)


def _article(author: str, title: str, year: int, journal: str, **more: str | int) -> tuple[str, dict[str, str]]:
    return _work("article", author, title, year, journal=journal, **more)


# In the order in which `cite` prints them: reaction, federation, optimisers, privacy, data.
WORKS: MappingProxyType[str, tuple[str, dict[str, str]]] = MappingProxyType(
    {
        "jin2024performative": _meeting(
            "Jin, Kun and Yin, Tongxin and Chen, Zhongzhu and Sun, Zeyu and Zhang, Xueru and Liu, Yang and "
            "Liu, Mingyan",
            "Performative Federated Learning: A Solution to Model-Dependent and Heterogeneous Distribution Shifts",
            2024, "Proceedings of the AAAI Conference on Artificial Intelligence", volume=38, pages="12938--12946",
        ),
        "zheng2024profl": _work(
            "misc",
            "Zheng, Xue and Xie, Tian and Tan, Xuwei and Yener, Aylin and Zhang, Xueru and Payani, Ali and "
            "Lee, Myungjin",
            "PROFL: Performative Robust Optimal Federated Learning", 2024, howpublished="Preprint",
        ),
        "li2024clipped": _work(
            "misc", "Li, Qiang and Yemini, Michal and Wai, Hoi-To",
            "Clipped SGD Algorithms for Privacy Preserving Performative Prediction: Bias Amplification and Remedies",
            2024, howpublished="Preprint",
        ),
        "perdomo2020performative": _meeting(
            'Perdomo, Juan and Zrnic, Tijana and Mendler-D{\\"u}nner, Celestine and Hardt, Moritz',
            "Performative Prediction", 2020, ICML, volume=119, pages="7599--7609",
        ),
        "mendlerdunner2020stochastic": _meeting(
            'Mendler-D{\\"u}nner, Celestine and Perdomo, Juan and Zrnic, Tijana and Hardt, Moritz',
            "Stochastic Optimization for Performative Prediction", 2020, NEURIPS, volume=33, pages="4929--4939",
        ),
        "miller2021outside": _meeting(
            "Miller, John P. and Perdomo, Juan C. and Zrnic, Tijana",
            "Outside the Echo Chamber: Optimizing the Performative Risk", 2021, ICML, volume=139, pages="7710--7720",
        ),
        "izzo2021learn": _meeting(
            "Izzo, Zachary and Ying, Lexing and Zou, James",
            "How to Learn when Data Reacts to Your Model: Performative Gradient Descent",
            2021, ICML, volume=139, pages="4641--4650",
        ),
        "brown2022stateful": _meeting(
            "Brown, Gavin and Hod, Shlomi and Kalemaj, Iden", "Performative Prediction in a Stateful World",
            2022, AISTATS, volume=151, pages="6045--6061",
        ),
        "li2022multiagent": _meeting(
            "Li, Qiang and Yau, Chung-Yiu and Wai, Hoi-To",
            "Multi-agent Performative Prediction with Greedy Deployment and Consensus Seeking Agents",
            2022, NEURIPS, volume=35, pages="38449--38460",
        ),
        "drusvyatskiy2023stochastic": _article(
            "Drusvyatskiy, Dmitriy and Xiao, Lin", "Stochastic Optimization with Decision-Dependent Distributions",
            2023, "Mathematics of Operations Research", volume=48, number=2, pages="954--998",
        ),
        "hardt2016strategic": _meeting(
            "Hardt, Moritz and Megiddo, Nimrod and Papadimitriou, Christos and Wootters, Mary",
            "Strategic Classification", 2016,
            "Proceedings of the 2016 ACM Conference on Innovations in Theoretical Computer Science", pages="111--122",
        ),
        "milli2019social": _meeting(
            "Milli, Smitha and Miller, John and Dragan, Anca D. and Hardt, Moritz",
            "The Social Cost of Strategic Classification", 2019,
            "Proceedings of the Conference on Fairness, Accountability, and Transparency", pages="230--239",
        ),
        "huber1964robust": _article(
            "Huber, Peter J.", "Robust Estimation of a Location Parameter",
            1964, "The Annals of Mathematical Statistics", volume=35, number=1, pages="73--101",
        ),
        "mcmahan2017communication": _meeting(
            'McMahan, Brendan and Moore, Eider and Ramage, Daniel and Hampson, Seth and Ag{\\"u}era y Arcas, Blaise',
            "Communication-Efficient Learning of Deep Networks from Decentralized Data",
            2017, AISTATS, volume=54, pages="1273--1282",
        ),
        "li2020convergence": _meeting(
            "Li, Xiang and Huang, Kaixuan and Yang, Wenhao and Wang, Shusen and Zhang, Zhihua",
            "On the Convergence of FedAvg on Non-IID Data", 2020, ICLR,
        ),
        "li2020fedprox": _meeting(
            "Li, Tian and Sahu, Anit Kumar and Zaheer, Manzil and Sanjabi, Maziar and Talwalkar, Ameet and "
            "Smith, Virginia",
            "Federated Optimization in Heterogeneous Networks",
            2020, "Proceedings of Machine Learning and Systems", volume=2, pages="429--450",
        ),
        "karimireddy2020scaffold": _meeting(
            "Karimireddy, Sai Praneeth and Kale, Satyen and Mohri, Mehryar and Reddi, Sashank J. and "
            "Stich, Sebastian U. and Suresh, Ananda Theertha",
            "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning",
            2020, ICML, volume=119, pages="5132--5143",
        ),
        "wang2020tackling": _meeting(
            "Wang, Jianyu and Liu, Qinghua and Liang, Hao and Joshi, Gauri and Poor, H. Vincent",
            "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization",
            2020, NEURIPS, volume=33, pages="7611--7623",
        ),
        "wang2021local": _work(
            "misc",
            "Wang, Jianyu and Xu, Zheng and Garrett, Zachary and Charles, Zachary and Liu, Luyang and Joshi, Gauri",
            "Local Adaptivity in Federated Learning: Convergence and Consistency", 2021, howpublished="Preprint",
        ),
        "wang2022unreasonable": _work(
            "misc",
            "Wang, Jianyu and Das, Rudrajit and Joshi, Gauri and Kale, Satyen and Xu, Zheng and Zhang, Tong",
            "On the Unreasonable Effectiveness of Federated Averaging with Heterogeneous Data",
            2022, howpublished="Preprint",
        ),
        "wang2019adaptive": _meeting(
            "Wang, Jianyu and Joshi, Gauri",
            "Adaptive Communication Strategies to Achieve the Best Error-Runtime Trade-off in Local-Update SGD",
            2019, "Proceedings of Machine Learning and Systems", volume=1,
        ),
        "jhunjhunwala2022fedvarp": _meeting(
            "Jhunjhunwala, Divyansh and Sharma, Pranay and Nagarkatti, Aushim and Joshi, Gauri",
            "FedVARP: Tackling the Variance Due to Partial Client Participation in Federated Learning",
            2022, "Conference on Uncertainty in Artificial Intelligence",
        ),
        "jhunjhunwala2023fedexp": _meeting(
            "Jhunjhunwala, Divyansh and Wang, Shiqiang and Joshi, Gauri",
            "FedExP: Speeding Up Federated Averaging via Extrapolation", 2023, ICLR,
        ),
        "cho2022biased": _meeting(
            "Cho, Yae Jee and Wang, Jianyu and Joshi, Gauri",
            "Towards Understanding Biased Client Selection in Federated Learning", 2022, AISTATS, volume=151,
        ),
        "cho2023cyclic": _meeting(
            "Cho, Yae Jee and Sharma, Pranay and Joshi, Gauri and Xu, Zheng and Kale, Satyen and Zhang, Tong",
            "On the Convergence of Federated Averaging with Cyclic Client Participation", 2023, ICML, volume=202,
        ),
        "reddi2021adaptive": _meeting(
            "Reddi, Sashank J. and Charles, Zachary and Zaheer, Manzil and Garrett, Zachary and Rush, Keith and "
            "Kone{\\v{c}}n{\\'y}, Jakub and Kumar, Sanjiv and McMahan, H. Brendan",
            "Adaptive Federated Optimization", 2021, ICLR,
        ),
        "blanchard2017machine": _meeting(
            "Blanchard, Peva and El Mhamdi, El Mahdi and Guerraoui, Rachid and Stainer, Julien",
            "Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent", 2017, NEURIPS, volume=30,
        ),
        "yin2018byzantine": _meeting(
            "Yin, Dong and Chen, Yudong and Ramchandran, Kannan and Bartlett, Peter",
            "Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates",
            2018, ICML, volume=80, pages="5650--5659",
        ),
        "stich2018sparsified": _meeting(
            "Stich, Sebastian U. and Cordonnier, Jean-Baptiste and Jaggi, Martin",
            "Sparsified SGD with Memory", 2018, NEURIPS, volume=31,
        ),
        "alistarh2017qsgd": _meeting(
            "Alistarh, Dan and Grubic, Demjan and Li, Jerry and Tomioka, Ryota and Vojnovic, Milan",
            "QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding", 2017, NEURIPS, volume=30,
        ),
        "karimireddy2019error": _meeting(
            "Karimireddy, Sai Praneeth and Rebjock, Quentin and Stich, Sebastian U. and Jaggi, Martin",
            "Error Feedback Fixes SignSGD and Other Gradient Compression Schemes", 2019, ICML, volume=97,
        ),
        "yurochkin2019bayesian": _meeting(
            "Yurochkin, Mikhail and Agarwal, Mayank and Ghosh, Soumya and Greenewald, Kristjan and "
            "Hoang, Nghia and Khazaeni, Yasaman",
            "Bayesian Nonparametric Federated Learning of Neural Networks", 2019, ICML, volume=97,
        ),
        "li2022noniid": _meeting(
            "Li, Qinbin and Diao, Yiqun and Chen, Quan and He, Bingsheng",
            "Federated Learning on Non-IID Data Silos: An Experimental Study",
            2022, "IEEE International Conference on Data Engineering",
        ),
        "polyak1964some": _article(
            "Polyak, Boris T.", "Some Methods of Speeding up the Convergence of Iteration Methods",
            1964, "USSR Computational Mathematics and Mathematical Physics", volume=4, number=5, pages="1--17",
        ),
        "nesterov1983method": _article(
            "Nesterov, Yurii", "A Method for Solving the Convex Programming Problem with Convergence Rate $O(1/k^2)$",
            1983, "Doklady Akademii Nauk SSSR", volume=269, number=3, pages="543--547",
        ),
        "duchi2011adaptive": _article(
            "Duchi, John and Hazan, Elad and Singer, Yoram",
            "Adaptive Subgradient Methods for Online Learning and Stochastic Optimization",
            2011, "Journal of Machine Learning Research", volume=12, pages="2121--2159",
        ),
        "tieleman2012rmsprop": _work(
            "misc", "Tieleman, Tijmen and Hinton, Geoffrey",
            "Lecture 6.5, RMSProp: Divide the Gradient by a Running Average of Its Recent Magnitude",
            2012, howpublished="COURSERA: Neural Networks for Machine Learning",
        ),
        "kingma2015adam": _meeting(
            "Kingma, Diederik P. and Ba, Jimmy", "Adam: A Method for Stochastic Optimization", 2015, ICLR,
        ),
        "zaheer2018adaptive": _meeting(
            "Zaheer, Manzil and Reddi, Sashank and Sachan, Devendra and Kale, Satyen and Kumar, Sanjiv",
            "Adaptive Methods for Nonconvex Optimization", 2018, NEURIPS, volume=31,
        ),
        "lecun1998gradient": _article(
            "LeCun, Yann and Bottou, L{\\'e}on and Bengio, Yoshua and Haffner, Patrick",
            "Gradient-Based Learning Applied to Document Recognition",
            1998, "Proceedings of the IEEE", volume=86, number=11, pages="2278--2324",
        ),
        "he2016deep": _meeting(
            "He, Kaiming and Zhang, Xiangyu and Ren, Shaoqing and Sun, Jian",
            "Deep Residual Learning for Image Recognition", 2016,
            "IEEE Conference on Computer Vision and Pattern Recognition", pages="770--778",
        ),
        "wu2018group": _meeting(
            "Wu, Yuxin and He, Kaiming", "Group Normalization", 2018, "European Conference on Computer Vision",
        ),
        "dwork2006calibrating": _meeting(
            "Dwork, Cynthia and McSherry, Frank and Nissim, Kobbi and Smith, Adam",
            "Calibrating Noise to Sensitivity in Private Data Analysis",
            2006, "Theory of Cryptography Conference", pages="265--284",
        ),
        "abadi2016deep": _meeting(
            "Abadi, Mart{\\'i}n and Chu, Andy and Goodfellow, Ian and McMahan, H. Brendan and Mironov, Ilya and "
            "Talwar, Kunal and Zhang, Li",
            "Deep Learning with Differential Privacy", 2016,
            "Proceedings of the 2016 ACM SIGSAC Conference on Computer and Communications Security", pages="308--318",
        ),
        "mcmahan2018learning": _meeting(
            "McMahan, H. Brendan and Ramage, Daniel and Talwar, Kunal and Zhang, Li",
            "Learning Differentially Private Recurrent Language Models", 2018, ICLR,
        ),
        "zhang2024dice": _meeting(
            "Zhang, Xinwei and Bu, Zhiqi and Wu, Zhiwei Steven and Hong, Mingyi",
            "Differentially Private SGD Without Clipping Bias: An Error-Feedback Approach", 2024, ICLR,
        ),
        "canonne2020discrete": _meeting(
            "Canonne, Cl{\\'e}ment L. and Kamath, Gautam and Steinke, Thomas",
            "The Discrete Gaussian for Differential Privacy", 2020, NEURIPS, volume=33,
        ),
        "steinke2023privacy": _meeting(
            "Steinke, Thomas and Nasr, Milad and Jagielski, Matthew",
            "Privacy Auditing with One (1) Training Run", 2023, NEURIPS, volume=36,
        ),
        "creditfusion2011give": _work(
            "misc", "{Credit Fusion} and Cukierski, Will", "Give Me Some Credit", 2011, howpublished="Kaggle",
        ),
        "becker1996adult": _work(
            "misc", "Becker, Barry and Kohavi, Ronny", "Adult",
            1996, howpublished="UCI Machine Learning Repository", doi="10.24432/C5XW20",
        ),
        "xiao2017fashion": _work(
            "misc", "Xiao, Han and Rasul, Kashif and Vollgraf, Roland",
            "Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine Learning Algorithms",
            2017, howpublished="arXiv:1708.07747",
        ),
        "krizhevsky2009learning": _work(
            "techreport", "Krizhevsky, Alex", "Learning Multiple Layers of Features from Tiny Images",
            2009, institution="University of Toronto",
        ),
    }
)  # fmt: skip
