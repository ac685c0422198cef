from .writing import Products as Products, refuse_without_highdicom as refuse_without_highdicom
from .writing import write_products as write_products
